"""A loop whose messages wait on a link, and then for their reader; both ends stamp them."""

import re
from pathlib import Path

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


def programs(guide: Path) -> dict[str, str]:
    """Those of the guide that stamp, by their files.

    One sends now and then, the other sleeps for some ms after each message.
    """
    reader, sender = re.findall(r"(?ms)^```python\n([^`]*?SO_TIMESTAMP.*?)^```$", guide.read_text())
    reader += "    time.sleep(random.uniform(0, 0.05))\n    if number == 119:\n        break\n"
    sender += """
time.sleep(0.5)
for number in range(120):
    send(number)
    time.sleep(random.uniform(0.015, 0.04))
record_departures()
"""
    return {"sender.py": f"import random\n{sender}", "reader.py": f"import random\n{reader}"}
