"""Files that hosts had no room for, accounts of losses among them.

They are written when all hosts are done, because each then has given back what it had set aside on
the same disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from loopscope.files import write_whole
from loopscope.provider._proto import agent_pb2 as pb
from loopscope.provider.untrusted import UntrustedError, relative_file


def write_unwritten(hosts: Path, replies: Mapping[str, pb.FinishTraceReply]) -> Iterator[str]:
    """Writes what each host's reply has of such files into the host's folder below `hosts`.

    Yields a text for each: that it is there after all, or why not and what is lost with it.
    """
    for host, reply in sorted(replies.items()):
        for name, content in sorted(reply.unwritten.items()):
            file = hosts / host / name
            try:
                file = hosts / host / relative_file(name)
                write_whole(file, content.decode("utf-8"))
                yield f"host {host}: its agent had no room for {name}, which is written now"
            except (UntrustedError, UnicodeDecodeError) as error:
                yield f"host {host}: its agent sends {error}, which is not written"
            except OSError as error:
                yield (
                    f"host {host}: cannot write {file}: {error.strerror}; make room on its disk. "
                    f"Events of the stream main: emitted {reply.emitted}, recorded "
                    f"{reply.recorded}, dropped {reply.dropped}"
                )
