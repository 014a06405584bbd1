"""Checkpoints that are whole or do not exist, written while training goes on, loadable at any world size.

A checkpoint is a directory of safetensors files, each rank's own, and a ``manifest.json`` that states the size and
sha256 of each file and where every tensor's pieces lie in them. It is written under a temporary name, hashed while it
is written, fsynced, given its manifest last and renamed onto a name that did not exist; on object storage, which knows
no rename, the manifest is the commit. Readers trust nothing but a manifest whose files are what it says, and hash the
very bytes that they load.

torch's distributed checkpoint library (DCP) plans who writes what and who reads what. Its own files are not used: they
are pickles, a flipped bit in them loads without a word, and a save whose writer thread died of a full disk reports
success (pytorch issue 191391).

This package imports nothing, so that the writing process, which needs no torch, starts at once.
"""
