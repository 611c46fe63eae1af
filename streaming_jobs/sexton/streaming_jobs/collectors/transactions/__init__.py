"""The collector `transactions`: what rejected transactions have left behind."""
