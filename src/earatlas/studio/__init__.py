"""The studio: look, listen and try in the browser, on this computer alone.

`earatlas studio` serves a page on 127.0.0.1. The process that serves it imports no library that
computes, so that the page is there at once; what computes are worker processes.

    browser ── http ──▶ server ── lines of JSON ──▶ worker: heads, recordings, scenes, live, story
               safety     │                           │
                          session, jobs               ▼
                                               the session's folder
"""
