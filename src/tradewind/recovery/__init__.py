"""Recovery: notices that Redis has lost the data of the station, keeps copies of definitions in SQL, and restores them.

Needs Redis and SQL and the stores of the other rooms; reports the fault `store_lost` on `station:faults`.
"""
