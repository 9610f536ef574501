/* How much each source address has failed lately, and until when it is not listened to: as sshd's
 * PerSourcePenalties. IPv4 counts by address, IPv6 by /64. A failure adds its penalty; below a
 * threshold nothing happens, above it the source is refused until the penalty has run off. Bounded:
 * when the table is full, the source with the least left makes room. Pure: the time is a parameter.
 * One thread. */
#pragma once

#include "common/err.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define SOURCES_MAX            4096u
#define SOURCES_GUESSING_US    5000000u   /* a wrong secret */
#define SOURCES_CLUMSY_US      500000u    /* a malformed request */
#define SOURCES_THRESHOLD_US   15000000u  /* below this a source is still listened to */
#define SOURCES_PENALTY_MAX_US 600000000u /* no penalty is longer */

struct http_sources;

int http_sources_new(struct http_sources **ret, struct err *err) must_use;
void http_sources_free(struct http_sources *sources);
/* 0 when the source may ask; else for how long it may not. */
uint64_t http_sources_wait_us(struct http_sources *sources, const struct sockaddr *source,
                              uint64_t now_us);
void http_sources_blame(struct http_sources *sources, const struct sockaddr *source,
                        uint64_t penalty_us, uint64_t now_us);
/* Open connections of a source; false when it has `max` already. */
bool http_sources_enter(struct http_sources *sources, const struct sockaddr *source, unsigned max,
                        uint64_t now_us);
void http_sources_leave(struct http_sources *sources, const struct sockaddr *source,
                        uint64_t now_us);
