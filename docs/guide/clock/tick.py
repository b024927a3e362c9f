from loopscope_trace import clock

start = clock.now()
end = clock.now()
if end.status == clock.UNKNOWN:
    raise SystemExit("the time is not known")
print(f"it is {end.earliest} to {end.latest} ns")

took = clock.elapsed(start, end)
if took is not None:
    print(f"a reading takes {took.best} ns, at most {took.longest}")
