"""Run recorded jobs again on other agents: the record, its dependencies, fleets of agents, and the event loop.

`metrics.replay` is the public function. Others prepare a model once and simulate it many times.
"""
