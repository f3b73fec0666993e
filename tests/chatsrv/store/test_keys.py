"""Keys of the store: everything of one session lies in one slot of a cluster."""

from __future__ import annotations

from redis.crc import key_slot

from chatsrv.store import keys


def test_all_keys_of_a_session_share_a_slot() -> None:
    tag = "AbC-_1234567"
    names = [keys.session(tag), keys.items(tag), keys.responses(tag), keys.cancels(tag), keys.events(tag, "resp_1")]
    names.append(keys.followed(tag, "resp_1"))
    assert len({key_slot(name.encode()) for name in names}) == 1
    assert len(set(names)) == len(names)


def test_sessions_and_owners_do_not_share_keys() -> None:
    assert keys.session("a") != keys.session("b")
    assert keys.events("a", "resp_1") != keys.events("a", "resp_2")
    assert keys.index("owner") not in (keys.session("owner"), keys.process("owner"))


def test_the_table_at_the_top_names_every_key() -> None:
    made = [keys.session("TAG"), keys.items("TAG"), keys.responses("TAG"), keys.cancels("TAG")]
    made += [keys.events("TAG", "RESP"), keys.followed("TAG", "RESP"), keys.index("OWNER"), keys.RUNNING]
    made += [keys.process("ID"), keys.inbox("ID"), keys.results("WORK"), keys.prefix("KEY")]
    for name in made:
        assert f"``{name}``" in (keys.__doc__ or "")
