"""The planner's interfaces: command line, HTTP service, job queue and webhooks. They translate requests and results;
every decision is the planner's.
"""
