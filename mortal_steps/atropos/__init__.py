"""Atropos (https://github.com/NousResearch/atropos), whose environments make batches to train on:
its API server as a trainer sees it, and what a batch consists of."""
