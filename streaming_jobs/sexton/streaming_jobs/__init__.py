"""The Spark jobs; the only part that imports pyspark."""
