"""Webhooks: an HTTPS address of the caller's that is told when a plan has ended. Off unless `serve --webhooks` says so.

targets   addresses that may be called: public ones, and no others
register  who wants to be told of what, and what is still to be told, in the database
sending   one delivery: signed, to the address that was looked at
notifier  the threads that deliver

A delivery is a POST of JSON with three headers:

    Shardplan-Delivery    its number; one that comes twice has the same
    Shardplan-Timestamp   seconds since 1970, when this attempt was signed
    Shardplan-Signature   v1=HMAC-SHA256(secret, timestamp + "." + body) in hex

A receiver computes the signature over the bytes as they came, compares in constant time, and refuses a timestamp that
is some minutes old. It answers 2xx within seconds. Deliveries come at least once, and not always in order.
"""
