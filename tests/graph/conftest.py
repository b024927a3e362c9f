"""Runs written from plain Python, as the analysis' tests have them; engines."""

import importlib.util
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from loopscope.graph.engine import DuckDB, Engine

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "analysis"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

# Seeded samples, and no assertion on the machine's speed; a profile from the command line wins.
# A smaller sample would take minutes: every one is a query.
settings.register_profile(
    "few", deadline=None, derandomize=True, max_examples=12, phases=(Phase.explicit, Phase.generate)
)
if settings.get_current_profile_name() in ("default", "ci", "seeded"):
    settings.load_profile("few")


@pytest.fixture(scope="session")
def duckdb() -> Iterator[DuckDB]:
    with DuckDB() as engine:
        yield engine


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """On two executors of this machine."""
    if importlib.util.find_spec("pyspark") is None or shutil.which("java") is None:
        pytest.skip("SKIPPED LOUDLY: needs pyspark and Java")
    import pyspark

    from loopscope.graph.spark import Spark

    # A cluster of one machine writes its logs into Spark's own folder.
    logs = Path(pyspark.__file__).parent / "work"
    before = set(logs.glob("*"))
    with pytest.MonkeyPatch.context() as patched:
        # Its programs live for a minute: compiling them to the best code takes longer than that
        # code saves. Executors inherit it.
        patched.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        engine = Spark("local-cluster[2,1,1024]", tmp_path_factory.mktemp("shared"))
    with engine:
        yield engine
    for log in set(logs.glob("*")) - before:
        shutil.rmtree(log)
