from pathlib import Path

import pytest
from hypothesis import settings

from ddconsole.core.plan import Plan
from ddconsole.planfile.plan_file import parse_plan

# A loaded machine is slow now and then: that is no failure.
settings.register_profile("plan", deadline=None)
settings.load_profile("plan")

FIXTURES = Path(__file__).parents[1] / "fixtures" / "plans"


@pytest.fixture(scope="session")
def small_text() -> str:
    return (FIXTURES / "small.yaml").read_text()


@pytest.fixture(scope="session")
def small(small_text: str) -> Plan:
    return parse_plan(small_text, "small.yaml")


@pytest.fixture(scope="session")
def fixtures() -> Path:
    return FIXTURES
