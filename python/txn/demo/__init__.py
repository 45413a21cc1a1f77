"""The main job: real flights through Spark and back, exactly once, under any kill.

`run` has the phases, `job` is the Spark program that gets killed, and `kills` plans the kills.
`judge` reads everything back and compares it with a computation of its own.
"""
