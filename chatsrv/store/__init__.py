"""The store: sessions and event logs in Redis or Valkey. The only room that imports redis."""

from chatsrv.store.connect import connect
from chatsrv.store.leases import Orphan
from chatsrv.store.store import ConversationPage, Store

__all__ = ["ConversationPage", "Orphan", "Store", "connect"]
