"""One simulated server for all tests of this file: DDTree with a budget of 15 on two ranks' worth of a fast clock."""

import json
import re
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pynvml
import pytest
from conftest import Event, Server, end_server, start_server, title

from ddconsole.core.clock import ENVIRONMENT_VARIABLE, clock_from_environment
from ddconsole.rehearsal.command import environment, prepare_state
from ddconsole.rehearsal.nvml import SimulatedNvml
from ddconsole.rehearsal.rates import Method, Speed
from ddconsole.rehearsal.state import REHEARSAL_VARIABLE
