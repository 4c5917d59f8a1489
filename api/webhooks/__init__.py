"""Webhooks: https addresses that are called when a plan has ended. Disabled unless `serve --webhooks` is given.

A delivery is a POST of JSON with three headers:

    Shardplan-Delivery    the delivery's number; a repeated delivery has the same number
    Shardplan-Timestamp   seconds since 1970, when this attempt was signed
    Shardplan-Signature   v1=HMAC-SHA256(secret, timestamp + "." + body) in hexadecimal

A receiver computes the signature over the received bytes, compares it in constant time, refuses a timestamp that is
some minutes old, and answers 2xx within seconds. Deliveries arrive at least once, and not always in order.
"""
