"""Tuners of TVM 0.17, raced from an environment of their own (`make ansor`)."""
