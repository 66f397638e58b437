"""What NCCL reads from its environment. A word that it does not know it ignores without saying so."""

LEVELS = frozenset({"LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS"})
"""Path levels of NCCL_P2P_LEVEL and NCCL_NET_GDR_LEVEL. nvidia-smi's NODE is none of them."""
OLD_LEVELS = {"0": "LOC", "1": "PIX", "2": "PXB", "3": "PHB", "4": "SYS", "5": "SYS"}
"""What numbers mean, by NCCL's source."""
LEVEL_VARIABLES = frozenset({"NCCL_P2P_LEVEL", "NCCL_NET_GDR_LEVEL"})
DEBUG_WORDS = frozenset({"VERSION", "WARN", "INFO", "ABORT", "TRACE", "NONE"})
ALGORITHMS = frozenset({"TREE", "RING", "COLLNETDIRECT", "COLLNETCHAIN", "NVLS", "NVLSTREE", "PAT", "COLLNET"})
PROTOCOLS = frozenset({"LL", "LL128", "SIMPLE"})
NUMBERS = frozenset(
    {
        "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE", "NCCL_CUMEM_ENABLE", "NCCL_CUMEM_HOST_ENABLE",
        "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS", "NCCL_NTHREADS",
        "NCCL_BUFFSIZE", "NCCL_LL_BUFFSIZE", "NCCL_LL128_BUFFSIZE", "NCCL_P2P_USE_CUDA_MEMCPY", "NCCL_NVLS_ENABLE",
        "NCCL_P2P_DIRECT_DISABLE", "NCCL_P2P_READ_ENABLE", "NCCL_P2P_PXN_LEVEL", "NCCL_SHM_USE_CUDA_MEMCPY",
        "NCCL_GRAPH_REGISTER", "NCCL_GRAPH_MIXING_SUPPORT", "NCCL_LAUNCH_MODE_GROUP", "NCCL_DMABUF_ENABLE",
        "NCCL_CROSS_NIC", "NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD", "NCCL_IGNORE_CPU_AFFINITY",
        "NCCL_RUNTIME_CONNECT", "NCCL_LOCAL_REGISTER", "NCCL_LEGACY_CUDA_REGISTER", "NCCL_P2P_NVL_CHUNKSIZE",
        "NCCL_P2P_PCI_CHUNKSIZE", "NCCL_P2P_NET_CHUNKSIZE", "NCCL_CHECK_POINTERS", "NCCL_WORK_FIFO_BYTES",
        "NCCL_CGA_CLUSTER_SIZE", "NCCL_MNNVL_ENABLE", "NCCL_PROTO_DISABLE", "NCCL_COLLNET_ENABLE",
        "NCCL_SET_THREAD_NAME", "NCCL_RAS_ENABLE", "NCCL_MULTI_RANK_GPU_ENABLE", "NCCL_WIN_ENABLE", "NCCL_SYM_CTAS",
        "NCCL_NVLINK_UTIL_CENTRIC_SCHED_ENABLE", "NCCL_IB_TIMEOUT", "NCCL_IB_RETRY_CNT", "NCCL_IB_GID_INDEX",
        "NCCL_IB_SL", "NCCL_IB_TC", "NCCL_IB_QPS_PER_CONNECTION", "NCCL_NET_GDR_READ", "NCCL_PXN_DISABLE",
        "NCCL_OOB_NET_ENABLE", "NCCL_UID_STAGGER_RATE", "NCCL_UID_STAGGER_THRESHOLD", "NCCL_ALLOC_P2P_NET_LL_BUFFERS",
    }
)  # fmt: skip
"""Variables whose value is a whole number."""
TEXTS = frozenset(
    {
        "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE", "NCCL_DEBUG_TIMESTAMP_FORMAT",
        "NCCL_DEBUG_TIMESTAMP_LEVELS",
        "NCCL_ALGO", "NCCL_PROTO", "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY", "NCCL_COMM_ID", "NCCL_TOPO_FILE",
        "NCCL_TOPO_DUMP_FILE", "NCCL_GRAPH_FILE", "NCCL_GRAPH_DUMP_FILE", "NCCL_NET", "NCCL_NET_PLUGIN",
        "NCCL_TUNER_PLUGIN",
        "NCCL_TUNER_CONFIG_FILE", "NCCL_PROFILER_PLUGIN", "NCCL_ENV_PLUGIN", "NCCL_CONF_FILE", "NCCL_HOSTID",
        "NCCL_LAUNCH_MODE", "NCCL_IB_HCA", "NCCL_IB_ADDR_FAMILY", "NCCL_IB_ADDR_RANGE", "NCCL_OOB_NET_IFNAME",
        "NCCL_MNNVL_UUID", "NCCL_MNNVL_CLIQUE_ID", "NCCL_RAS_ADDR", "NCCL_RAS_TIMEOUT_FACTOR", "NCCL_P2P_LEVEL",
        "NCCL_NET_GDR_LEVEL", "NCCL_VERSION", "NCCL_COLLNET_PLUGIN", "NCCL_GIN_PLUGIN",
    }
)  # fmt: skip
KNOWN = NUMBERS | TEXTS


def trouble_with(name: str, value: str) -> str:
    """Why NCCL would ignore or misread this; empty where nothing is known against it."""
    if name in LEVEL_VARIABLES:
        if value in OLD_LEVELS:
            return f"a number of old: {OLD_LEVELS[value]} is meant by {value}"
        return "" if value in LEVELS else f"no level that NCCL knows: {', '.join(sorted(LEVELS))}, in capitals"
    if name in NUMBERS:
        return "" if value.strip().lstrip("-").isdigit() else "not a whole number"
    if name == "NCCL_DEBUG":
        return "" if value.upper() in DEBUG_WORDS else f"none of {', '.join(sorted(DEBUG_WORDS))}"
    words = {part.strip().upper().lstrip("^") for part in value.replace(";", ",").split(",") if part.strip()}
    if name == "NCCL_PROTO":
        return "" if words <= PROTOCOLS else f"none of {', '.join(sorted(PROTOCOLS))}"
    if name == "NCCL_ALGO" and ":" not in value:
        return "" if words <= ALGORITHMS else f"none of {', '.join(sorted(ALGORITHMS))}"
    return ""
