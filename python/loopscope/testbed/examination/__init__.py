"""What a machine offers and lacks for loopscope: this one, or those of testbed ssh.

`facts` asks a machine everything by one shell script, and the other modules judge the answers, so
that the same examinations serve this machine and others.
"""

from __future__ import annotations

from loopscope.testbed.examination.finding import Finding
from loopscope.testbed.examination.here import examine_here
from loopscope.testbed.examination.over_ssh import Examined, examine_machines

__all__ = ["Examined", "Finding", "examine_here", "examine_machines"]
