"""The main job: real flights through Spark and back, exactly once, whatever is killed.

`run` has the phases, `job` is the Spark program that gets killed, `kills` decides who dies
when, `judge` reads everything back and compares it with a computation of its own.
"""
