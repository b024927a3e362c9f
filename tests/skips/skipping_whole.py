"""A file that skips, for `test_skips.py`: pytest does not find it by itself."""

import pytest

pytest.skip("an example of a file that is not allowed to", allow_module_level=True)
