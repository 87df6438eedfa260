"""Every way one delivery can go, as far as a number of steps reaches.

Two dispatchers, one delivery and a modelled provider take every step they could take, in every
order: claim, mark, send, settle, crash, stop and wake, lapse, sweep, reconcile, cancel. What they
do is done by the real decisions and the real store on a real database. Only three things are
modelled: the provider (:mod:`tests.explorer.provider`, which knows the truth), the network
between, and the time.

    python -m tests.explorer --depth 12
"""
