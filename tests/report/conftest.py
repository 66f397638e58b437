import os
import shutil

import pytest

from ddconsole.report.attempt_reader import attempts_in_memory
from ddconsole.report.collect import result_set
from ddconsole.report.result_set import ResultSet
from tests.report.sample_runs import SampleRun, ct200_run, small_run


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("tex") is None or all(map(shutil.which, ("pdflatex", "lualatex", "pdftotext"))):
        return
    packages = "texlive-latex-recommended texlive-luatex texlive-pictures texlive-science lmodern poppler-utils"
    if os.environ.get("CI") == "true":
        pytest.fail(f"no TeX here: apt install {packages}")
    pytest.skip(f"no TeX here: apt install {packages}")


@pytest.fixture(scope="session")
def small() -> SampleRun:
    return small_run()


@pytest.fixture(scope="session")
def ct200() -> SampleRun:
    return ct200_run()


def results_of(sample: SampleRun) -> ResultSet:
    return result_set(sample.state, attempts_in_memory(sample.attempts))


@pytest.fixture(scope="session")
def small_results(small: SampleRun) -> ResultSet:
    return results_of(small)


@pytest.fixture(scope="session")
def ct200_results(ct200: SampleRun) -> ResultSet:
    return results_of(ct200)
