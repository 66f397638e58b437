"""A `llama-server` look-alike over the PyPI package xllamacpp, which is llama.cpp's own C++ HTTP server in Python.

It takes the flags of llama-server that a sweep needs, under llama-server's names, and nothing of it is ddconsole's: it
runs as a plain file with an interpreter that has only xllamacpp, and as `python -m ddconsole.engines.xllamacpp_server`.
"""

import argparse
import json
import pathlib
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any

TYPES = ("none", "draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "ngram-simple")


def parser() -> argparse.ArgumentParser:
    """The command line. Names are not abbreviated, as llama-server does not either."""
    found = argparse.ArgumentParser(prog="llama-server", description="llama.cpp's server", allow_abbrev=False)
    add = found.add_argument
    add("-m", "--model", help="path of a GGUF file")
    add("-a", "--alias", help="name under which the model is served")
    add("--host", default="127.0.0.1", help="address to listen on")
    add("--port", type=int, default=8080, help="port to listen on")
    add("-c", "--ctx-size", type=int, default=0, help="context of all slots together; 0 takes the model's")
    add("-np", "--parallel", type=int, default=1, help="number of slots")
    add("-t", "--threads", type=int, default=1, help="threads for generating")
    add("-tb", "--threads-batch", type=int, help="threads for prompts; as --threads by default")
    add("-b", "--batch-size", type=int, help="logical batch")
    add("-ub", "--ubatch-size", type=int, help="physical batch")
    add("-ngl", "--n-gpu-layers", type=int, help="layers kept on the GPU")
    add("-s", "--seed", type=int, help="seed of requests that give none")
    add("--metrics", action="store_true", help="answer /metrics")
    add("--slots", action="store_true", help="answer /slots")
    add("--slot-save-path", help="folder for saved slots; needed to erase one")
    add("-cram", "--cache-ram", type=int, help="MiB of the prompt cache in host memory; 0 switches it off")
    add("--no-warmup", action="store_true", help="leave out the empty run before listening")
    add("--spec-type", default="none", choices=TYPES, help="kind of speculation")
    add("-md", "--spec-draft-model", help="path of the draft's GGUF file")
    add("--spec-draft-n-max", type=int, help="tokens drafted in one step at most")
    add("--spec-draft-n-min", type=int, help="tokens drafted in one step at least")
    add("--spec-draft-p-min", type=float, help="probability below which drafting stops")
    add("--spec-ngram-simple-size-n", type=int, help="length of the n-gram that is looked up")
    add("--spec-ngram-simple-size-m", type=int, help="tokens drafted after a match")
    add("--spec-synth-rates", help="prescribed acceptance per position, comma-separated; output is not valid")
    add("--build-json", action="store_true", help="print version and file of the build, and leave")
    return found


def parameters(options: argparse.Namespace, xllamacpp: Any) -> Any:
    """The options as xllamacpp's `CommonParams`; what is not given keeps llama.cpp's default."""
    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.hostnames = [options.host]
    params.port = options.port
    params.n_ctx = options.ctx_size
    params.n_parallel = options.parallel
    params.cpuparams.n_threads = options.threads
    params.cpuparams_batch.n_threads = options.threads_batch or options.threads
    params.endpoint_metrics = options.metrics
    params.endpoint_slots = options.slots
    params.warmup = not options.no_warmup
    if options.alias:
        params.model_alias = {options.alias}
    if options.slot_save_path:
        params.slot_save_path = options.slot_save_path.rstrip("/") + "/"
    optional = {
        "n_batch": options.batch_size,
        "n_ubatch": options.ubatch_size,
        "n_gpu_layers": options.n_gpu_layers,
        "cache_ram_mib": options.cache_ram,
    }
    for name, value in optional.items():
        if value is not None:
            setattr(params, name, value)
    if options.seed is not None:
        params.sampling.seed = options.seed
    _speculation(params.speculative, options, xllamacpp)
    return params


def _speculation(speculative: Any, options: argparse.Namespace, xllamacpp: Any) -> None:
    if options.spec_type == "none":
        return
    name = "COMMON_SPECULATIVE_TYPE_" + options.spec_type.upper().replace("-", "_")
    speculative.types = [getattr(xllamacpp.common_speculative_type, name)]
    if options.spec_draft_model:
        speculative.draft.mparams.path = options.spec_draft_model
    optional = (
        (speculative.draft, "n_max", options.spec_draft_n_max),
        (speculative.draft, "n_min", options.spec_draft_n_min),
        (speculative.draft, "p_min", options.spec_draft_p_min),
        (speculative.ngram_simple, "size_n", options.spec_ngram_simple_size_n),
        (speculative.ngram_simple, "size_m", options.spec_ngram_simple_size_m),
    )
    for target, field, value in optional:
        if value is not None:
            setattr(target, field, value)
    if options.spec_synth_rates:
        speculative.synth_rates = [float(rate) for rate in options.spec_synth_rates.split(",")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; a second one ends the process at once."""
    command_line = parser()
    options = command_line.parse_args(arguments)
    # As a plain file its own folder comes first: modules there are named like engines.
    here = str(pathlib.Path(__file__).resolve().parent)
    sys.path[:] = [path for path in sys.path if str(pathlib.Path(path or ".").resolve()) != here]
    import xllamacpp  # noqa: PLC0415  # after parsing, so that --help needs nothing

    if options.build_json:
        build = {"engine": "llamacpp", "version": f"xllamacpp {xllamacpp.__version__}", "file": xllamacpp.__file__}
        sys.stdout.write(json.dumps({**build, "commit": None, "dirty": None}) + "\n")
        return 0
    if not options.model:
        command_line.error("--model is required")
    return _serve(parameters(options, xllamacpp), xllamacpp)


def _serve(params: Any, xllamacpp: Any) -> int:
    stopped = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True
        for one in (signal.SIGTERM, signal.SIGINT):
            signal.signal(one, signal.SIG_DFL)

    # While it loads, a signal ends the process at once: a handler of ours would wait for the C++ side to return.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        time.sleep(0.3)  # llama.cpp's log has a thread of its own: its last line says why
        sys.stderr.write(f"llama-server: {error}\n")
        return 1
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, stop)
    while not stopped:
        time.sleep(0.2)
    del server
    return 0


if __name__ == "__main__":
    sys.exit(main())
