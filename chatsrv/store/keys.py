"""Every key, with its type and its time to live.

| key | type | holds | lives |
|---|---|---|---|
| ``chatsrv:{TAG}:session``       | hash   | fields of ``records.Session``                            | session |
| ``chatsrv:{TAG}:items``         | hash   | item id → ``records.ItemRecord``                         | session |
| ``chatsrv:{TAG}:responses``     | hash   | response id → ``records.ResponseRecord``                 | session |
| ``chatsrv:{TAG}:cancels``       | set    | ids of responses to cancel, read by who runs them        | session |
| ``chatsrv:{TAG}:events:RESP``   | stream | events of one response, many in an entry whose id is     | events  |
|                                 |        | ``<sequence number of the last of them>-1``              |         |
| ``chatsrv:{TAG}:followed:RESP`` | string | "1" while it is followed through another process         | 5 s     |
| ``chatsrv:owner:{OWNER}:index`` | zset   | conversation id → time of last use                       | session |
| ``chatsrv:process:ID``          | string | ``records.Heartbeat`` of a server process while it lives | 8 s     |
| ``chatsrv:inbox:ID``            | stream | work that other processes send to this one               | 1 min   |
| ``chatsrv:results:WORK``        | stream | what came of it                                          | 1 min   |
| ``chatsrv:prefix:KEY``          | hash   | process → ``records.PrefixPlace``, for the prefix-cache  | 10 min  |
|                                 |        | key of each finished turn                                |         |
| ``chatsrv:running``             | hash   | response id → process that runs it, empty if it is       | session |
|                                 |        | handed over to whoever comes first                       |         |

*session*: ``session_ttl_s`` after the last use; *events*: ``events_ttl_s``, but not longer than the session. TAG is the
part that all identifiers of a session share (``chatsrv.ids``) and a hash tag: the keys of a session lie in one slot,
are written in one transaction and expire together. An owner is a hash of who the caller is, and safe in a key.
"""

from __future__ import annotations

PROCESS_TTL_S = 8
FOLLOWED_TTL_S = 5
INBOX_TTL_S = 60
PREFIX_TTL_S = 600  # how long a prefix is believed to stay cached


def session(tag: str) -> str:
    return f"chatsrv:{{{tag}}}:session"


def items(tag: str) -> str:
    return f"chatsrv:{{{tag}}}:items"


def responses(tag: str) -> str:
    return f"chatsrv:{{{tag}}}:responses"


def cancels(tag: str) -> str:
    return f"chatsrv:{{{tag}}}:cancels"


def events(tag: str, response_id: str) -> str:
    return f"chatsrv:{{{tag}}}:events:{response_id}"


def followed(tag: str, response_id: str) -> str:
    return f"chatsrv:{{{tag}}}:followed:{response_id}"


def index(owner: str) -> str:
    return f"chatsrv:owner:{{{owner}}}:index"


def process(process_id: str) -> str:
    return f"chatsrv:process:{process_id}"


def inbox(process_id: str) -> str:
    return f"chatsrv:inbox:{process_id}"


def results(work_id: str) -> str:
    return f"chatsrv:results:{work_id}"


def prefix(key: str) -> str:
    return f"chatsrv:prefix:{key}"


RUNNING = "chatsrv:running"
