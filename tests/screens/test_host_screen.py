from dataclasses import replace

import pytest

from ddconsole.core.host_state import NOT_READ, DeviceOpener, GpuProcess, HostState, RemappedRows
from ddconsole.core.readings import read, unavailable
from ddconsole.probe.nvml import unreadable_gpu
from screens.hardware_text import bar, number_ranges, rate
from screens.host_facts import HostFacts, gpu_users
from screens.host_text import host_lines
from screens.spans import Line, Role, plain
from screens.widgets.time_series import braille
from tests.screens import ct200
from tests.screens.driving import opened, pressed, screen_text, settled
from tests.screens.host_preview import GROUPS, feed_on


def drawn(
    machine: HostState | None, size: tuple[int, int] = (79, 21), section: int = 0, age: float = 0.0
) -> list[Line]:
    feed = ct200.midway()
    now = (machine.at if machine is not None else feed.clock) + age
    history = [machine, machine] if machine is not None else []
    return host_lines(HostFacts("ct200", machine, history, feed.state, now), size, section)


def text_of(lines: list[Line]) -> str:
    return "\n".join(plain(one) for one in lines)


@pytest.mark.parametrize("size", [(79, 21), (119, 37), (159, 42), (199, 47)])
@pytest.mark.parametrize("gpus", [0, 1, 2, 8, 16])
def test_every_gpu_has_its_line_in_its_node_and_nothing_is_wider_than_the_screen(
    gpus: int, size: tuple[int, int]
) -> None:
    lines = drawn(ct200.machine(1000.0, gpus=gpus, busy=(0,)), size)
    assert max(len(plain(one)) for one in lines) <= size[0]
    boxes = [plain(one) for one in lines if plain(one).startswith("│")]
    assert [int(one[2:4]) for one in boxes] == list(range(gpus))
    assert "NUMA 0" in text_of(lines)
    assert "NUMA 1" in text_of(lines)
    if gpus == 0:
        assert "no GPU: NVML is not installed on this machine" in text_of(lines)


def test_values_are_those_of_the_sample() -> None:
    text = text_of(drawn(ct200.machine(1000.0)))
    for wanted in (
        "580.82.07",
        "CPUs 0-31,64-95",
        "83.2/95 GiB",
        "312/600 W",
        "61 °C",
        "PCIe 5x16",
        "c029",
        "shm free",
    ):
        assert wanted in text


def test_what_is_not_known_is_neither_zero_nor_an_error() -> None:
    machine = ct200.machine(1000.0, gpus=1)
    gpu = replace(
        machine.gpus[0],
        utilisation=unavailable("not supported", 1000.0, "nvml"),
        power=unavailable("not supported", 1000.0, "nvml"),
        memory_used=unavailable("lost", 1000.0, "nvml"),
        processes=unavailable("no permission", 1000.0, "nvml"),
        clock_event_reasons=unavailable("no", 1000.0, "nvml"),
    )
    text = text_of(drawn(replace(machine, gpus=(gpu,)), section=2))
    assert "n/a" in text
    assert "····" in text
    assert "no permission" in text
    assert " 0 %" not in text


def test_a_sample_that_is_old_says_since_when_and_is_dim() -> None:
    lines = drawn(ct200.machine(1000.0), age=75.0)
    assert "no answer for 75 s: values are old" in text_of(lines)
    boxes = [one for one in lines if plain(one).startswith("│")]
    assert {role for one in boxes for text, role in one if text.strip() and "PCIe" not in text} <= {
        Role.DIM,
        Role.PLAIN,
    }


def test_no_sample_yet() -> None:
    assert "no sample of ct200 yet" in text_of(drawn(None))


def test_a_link_narrower_than_it_can_be_is_marked_only_where_that_means_something() -> None:
    machine = ct200.machine(1000.0, gpus=2, busy=(0,))
    slow = replace(machine.gpus[0], pcie_generation=read(3, 1000.0, "nvml"))
    lines = drawn(replace(machine, gpus=(slow, machine.gpus[1])))
    roles = {text.strip(): role for one in lines for text, role in one if "PCIe" in text}
    assert roles["PCIe 3x16/5x16"] is Role.WARN
    assert roles["PCIe 1x16/5x16"] is Role.DIM


def test_a_throttled_card_is_bad_news() -> None:
    machine = ct200.machine(1000.0, gpus=1)
    hot = replace(machine.gpus[0], clock_event_reasons=read(0x40, 1000.0, "nvml"))
    lines = drawn(replace(machine, gpus=(hot,)), (159, 42))
    assert any("throttled: thermal" in text and role is Role.BAD for one in lines for text, role in one)


def test_gpus_without_a_node_have_a_box_of_their_own() -> None:
    machine = ct200.machine(1000.0, gpus=2)
    lost = replace(machine, nodes=tuple(replace(node, gpus=()) for node in machine.nodes))
    assert "NUMA node not known" in text_of(drawn(lost))


def test_a_foreign_process_is_told_from_ours() -> None:
    machine = ct200.machine(1000.0)
    foreign = replace(machine.gpus[0], processes=read((GpuProcess(2210, None),), 1000.0, "nvml"))
    text = text_of(drawn(replace(machine, gpus=(foreign, *machine.gpus[1:])), section=2))
    assert "pid 2210" in text
    assert "no launch of this run is here" in text
    assert "launch 5's GPU" in text


def test_a_process_is_named_as_this_container_sees_it() -> None:
    text = text_of(drawn(ct200.machine(1000.0), (119, 24), section=2))
    assert "root: sglang::scheduler_TP0" in text


def test_a_process_that_the_driver_numbers_otherwise_is_shown_by_its_own_pid() -> None:
    machine = ct200.machine(1000.0, gpus=1, busy=())
    gpu = replace(
        machine.gpus[0],
        processes=read((GpuProcess(2_210_077, 1 << 30),), 1000.0, "nvml"),
        openers=read((DeviceOpener(311, "mara", "python train.py"),), 1000.0, "/proc"),
    )
    text = text_of(drawn(replace(machine, gpus=(gpu,)), section=2))
    assert "pid 2210077" in text
    assert "opened by 311" in text
    assert "mara: python train.py" in text


def test_links_say_what_lies_between_and_whether_direct_access_works() -> None:
    text = text_of(drawn(ct200.machine(1000.0), section=3))
    assert "NODE" in text
    assert "direct reads, writes: ok, atomics: not supported" in text
    assert "0 with 4-7" in text


def test_pair_matrix_marks_pairs_without_direct_reads() -> None:
    machine = ct200.machine(1000.0, gpus=4)
    blocked = replace(machine.pairs[0], p2p=read("chipset not supported", 1000.0, "nvml"))
    lines = drawn(replace(machine, pairs=(blocked, *machine.pairs[1:])), (159, 42))
    matrix = [plain(one).split() for one in lines if plain(one).startswith(" GPU ") and "NODE" in plain(one)]
    assert matrix[0][:6] == ["GPU", "0", "·", "NODE!", "SYS", "SYS"]
    assert matrix[3][:6] == ["GPU", "3", "SYS", "SYS", "NODE", "·"]


def test_health_says_what_was_looked_at_and_traffic() -> None:
    text = text_of(drawn(ct200.machine(1000.0), section=1))
    assert "GPU 0-7: well: ECC, remapped rows, no Xid, no reset wanted, PCIe errors" in text
    assert "↑ 2.1 GB/s ↓ 3.4 GB/s" in text
    assert "by power cap 12 s" in text


def test_a_sick_card_is_bad_news_in_the_overview_and_in_health() -> None:
    machine = ct200.machine(1000.0, gpus=2)
    sick = replace(
        machine.gpus[1],
        xids=read((13, 79), 1000.0, "nvml"),
        ecc_uncorrected=read(3, 1000.0, "nvml"),
        recovery_action=read("GPU reset", 1000.0, "field 230"),
        remapped_rows=read(RemappedRows(1, 1, pending=True, failed=False), 1000.0, "nvml"),
    )
    lines = drawn(replace(machine, gpus=(machine.gpus[0], sick)), (159, 24), section=1)
    bad = [text.strip() for one in lines for text, role in one if role is Role.BAD]
    assert bad[0] == "needs: GPU reset"
    assert bad[1:] == [
        "needs: GPU reset",
        "Xid 13, 79",
        "3 memory errors not corrected",
        "a memory row waits for a reset to be remapped",
    ]
    assert "GPU 0: well" in text_of(lines)


def test_what_is_not_known_of_health_is_not_called_well() -> None:
    machine = ct200.machine(1000.0, gpus=1)
    gpu = replace(machine.gpus[0], xids=unavailable("no events", 1000.0, ""), ecc_uncorrected=NOT_READ)
    text = text_of(drawn(replace(machine, gpus=(gpu,)), section=1))
    assert "well: remapped rows, no reset wanted, PCIe errors not known: ECC, no Xid" in text


def test_a_card_that_does_not_answer_says_since_when_in_its_row() -> None:
    machine = ct200.machine(1000.0, gpus=2)
    why = "no answer to nvmlDeviceGetPowerUsage since 12:00:01: the driver hangs on this GPU"
    lost = replace(unreadable_gpu(1, why, 1000.0), numa_node=machine.gpus[1].numa_node)
    lines = drawn(replace(machine, gpus=(machine.gpus[0], lost)), (119, 24))
    row = next(one for one in lines if plain(one).startswith("│  1 "))
    assert why in plain(row)
    assert any(role is Role.BAD for _, role in row)


@pytest.mark.parametrize(
    ("bytes_a_second", "text"),
    [(0.0, "0 B/s"), (999.0, "999 B/s"), (2200.0, "2.2 kB/s"), (59.3e9, "59.3 GB/s"), (123e6, "123 MB/s")],
)
def test_rates(bytes_a_second: float, text: str) -> None:
    assert rate(read(bytes_a_second, 1.0, "field 197")) == text
    assert rate(unavailable("no", 1.0, "field 197")) == "n/a"


def test_who_is_on_which_gpu() -> None:
    feed = ct200.midway()
    assert gpu_users(feed.state) == {7: "c029 ddtree-b15"}
    assert gpu_users(ct200.feed().state) == {}


async def test_the_screen_shows_samples_as_they_come_and_sections_by_key() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        await pressed(pilot, "3")
        assert "utilisation, last 4 min" in screen_text(app)
        feed.set_host(ct200.machine(feed.clock + 1, busy=(0, 7)))
        await settled(pilot)
        assert screen_text(app).count("312/600 W") == 2
        await pressed(pilot, "i")
        assert "health, and traffic of the links" in screen_text(app)
        await pressed(pilot, "i")
        assert "processes on the GPUs" in screen_text(app)
        await pressed(pilot, "i")
        assert "links between GPUs" in screen_text(app)


@pytest.mark.parametrize(
    ("portion", "text"),
    [(0.0, "────"), (0.5, "██──"), (1.0, "████"), (2.0, "████"), (-1.0, "────"), (0.53, "██▏─"), (None, "····")],
)
def test_bars(portion: float | None, text: str) -> None:
    assert "".join(part for part, _ in bar(portion, 4, Role.LIVE)) == text


def test_number_ranges() -> None:
    assert number_ranges([7]) == "7"
    assert number_ranges([0, 1, 2, 5, 7, 6]) == "0-2,5-7"


def test_a_graph_has_a_fixed_scale_and_gaps() -> None:
    assert braille([100.0, 100.0], 1, 2, 100.0) == ["⣿", "⣿"]
    assert braille([50.0, 50.0], 1, 2, 100.0) == [" ", "⣿"]
    assert braille([0.0, None], 1, 1, 100.0) == ["⡀"]
    assert braille([None, None], 1, 1, 100.0) == [" "]
    assert braille([float("nan"), 400.0], 1, 1, 100.0) == ["⢸"]
    assert braille([], 2, 1, 100.0) == ["  "]


@pytest.mark.parametrize(
    ("gpus", "told"),
    [
        (1, []),
        (2, ["TP2 on GPU 0-1 crosses NUMA 0 and 1  no node has so many"]),
        (
            8,
            [
                "TP4 on GPU 2-5 crosses NUMA 0 and 1  better: placement: {4: [0, 1, 2, 3]}",
                "TP8 on GPU 0-7 crosses NUMA 0 and 1  no node has so many",
            ],
        ),
        (16, ["TP8 on GPU 4-11 crosses NUMA 0 and 1  better: GPU 0-7"]),
    ],
)
def test_groups_that_cross_nodes_are_named_with_a_placement_that_would_not(gpus: int, told: list[str]) -> None:
    feed = feed_on(gpus)
    machine = feed.host_state
    assert machine is not None
    for size in ((79, 21), (199, 47)):
        lines = host_lines(HostFacts("ct200", machine, [machine], feed.state, machine.at), size, 0)
        said = [plain(one).strip() for one in lines if "crosses NUMA" in plain(one)]
        wide = [
            one.replace("GPU 0-7", "placement: {8: [0, 1, 2, 3, 4, 5, 6, 7]}") if "better" in one else one
            for one in told
        ]
        assert said == (told if size[0] < 100 else wide)
        running = GROUPS[gpus][-1]
        rows = [plain(one) for one in lines if plain(one).startswith("│") and f"c{len(GROUPS[gpus]):03}" in plain(one)]
        assert [int(one[2:4]) for one in rows] == list(running), "which cell runs where"
