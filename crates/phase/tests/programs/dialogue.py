"""The program of dialogue.rs in Python; its first argument is the module's file."""

import importlib.util
import os
import sys

spec = importlib.util.spec_from_file_location("loopscope.phase", sys.argv[1])
module = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = module
spec.loader.exec_module(module)
sys.stdout.reconfigure(encoding="utf-8")


def connect(config, phase):
    to = config.get("to", "nobody")
    peer = phase.peers.get(to, module.Peer("", "nowhere", {}))
    port, label = peer.values.get("port", -1), peer.values.get("label", "none")
    print(f"to {to} at {peer.address}:{port} ({label})")
    for address in peer.addresses:
        print(f"address {address}")


def run(config, phase):
    print(
        f"count {config.get('count', -1)} period {config.get('period', 'never')} "
        f"share {config.get('share', -1):.3f} fast {int(config.get('fast', False))} "
        f"measured {int(phase.measured)}"
    )
    if "fail" in config:
        sys.exit(config["fail"])


def listen(phase):
    phase.publish(port=40123, grüß='"\\/\b\f\n\r\t\x01\x1f\x7f🙂', rate=0.25, whole=-3.0)
    phase.publish(least=-(2**63))
    try:
        phase.publish(port=1)
    except module.PhaseError:
        pass
    else:
        sys.exit(9)


def of_functions():
    program = module.Program()

    @program.configure
    def configure(session):
        print(f"component {session.component or 'none'}")
        if "refuse" in session.config:
            sys.exit(session.config["refuse"])

    @program.phase("listen")
    def listen_phase(session, phase):
        print("phase listen")
        listen(phase)

    @program.phase("connect")
    def connect_phase(session, phase):
        print("phase connect")
        connect(session.config, phase)

    @program.phase("run")
    def run_phase(session, phase):
        print("phase run")
        run(session.config, phase)

    program.run(sys.argv[2:])


def of_a_loop():
    with module.Session(["listen", "connect", "run"], sys.argv[2:]) as session:
        print(f"component {session.component or 'none'}")
        for phase in session:
            print(f"phase {phase.name}")
            if phase.name == "listen":
                listen(phase)
            elif phase.name == "connect":
                connect(session.config, phase)
            else:
                run(session.config, phase)


try:
    if "DIALOGUE_FUNCTIONS" in os.environ:
        of_functions()
    else:
        of_a_loop()
except module.PhaseError as error:
    sys.exit(str(error))
