"""A process beside the ranks of a node that notices when one of them dies or hangs, says which, and ends the attempt.

:mod:`verdict` is what is concluded from what is seen, without input or output; :mod:`sight` is what can be seen of
processes, :mod:`nodes` what nodes tell each other through the run directory; :mod:`process` watches and acts;
:mod:`start` is the ranks' end of it.
"""
