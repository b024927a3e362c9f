"""Puts a value into a channel, and gets it."""

import json

from loopscope import stm

service = stm.Service()
poses = service.create("poses", item_bytes=256, serializer=json)
with poses.output() as out, poses.input() as into:
    out.put_object(1, {"x": 0.5, "y": [1, 2]})
    with into.get(1) as item:
        print(item.object())
service.remove("poses")
