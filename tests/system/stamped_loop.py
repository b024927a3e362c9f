"""A loop whose messages wait on a link, and then for their reader, who stamps what it reads."""

import re
from pathlib import Path

SENDER = """
import random, socket, time
from loopscope_trace import flow_out

sent = flow_out("msg", "sent")
conn = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
time.sleep(0.5)
for number in range(120):
    sent(number)
    conn.sendto(number.to_bytes(8, "little"), ("h2", 7001))
    time.sleep(random.uniform(0.015, 0.04))
"""
TEXT = """
name: stamped
hosts: [h1, h2]
components:
  reader: {host: h2, run: python ./reader.py, ready: {port: 7001}}
  sender: {host: h1, run: python ./sender.py, start: run, ready: {exit: 0}}
network: {h1 -> h2: {delay: 12ms}}
phases: [{name: run, measured: true, timeout: 60s}]
trace: {user: ["msg:*"]}
measure: {paths: {msg: {key: id, events: [sender/msg:sent, reader/msg:received]}}}
"""


def reader(guide: Path) -> str:
    """The program of the guide that stamps, which sleeps for some ms after each message."""
    (text,) = re.findall(r"(?ms)^```python\n(.*?SO_TIMESTAMPNS.*?)^```$", guide.read_text())
    end = "    time.sleep(random.uniform(0, 0.05))\n    if number == 119:\n        break\n"
    return "import random\n" + text + end
