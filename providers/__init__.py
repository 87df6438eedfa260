"""Provider adapters: how one message leaves, and what the answer proves.

A provider author imports only this package. It knows neither ``outbox`` nor
``dispatcher``; the words they share are in :mod:`providers.contract`.
"""
