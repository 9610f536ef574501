/* A sandbox's state and numbers as the verbs say them, so that all of them say it alike. Pure; any
 * thread. */
#pragma once

#include "client/sandstorm.h"

#define SANDBOX_STATE_MAX 32u
#define SANDBOX_BYTES_MAX 24u

/* "online", "no runner", "online,draining". */
void sandbox_state_text(const struct sandstorm_sandbox *sandbox, char out[SANDBOX_STATE_MAX]);
/* "512B", "3.0K", "17M", "7.8G". */
void sandbox_bytes_text(uint64_t bytes, char out[SANDBOX_BYTES_MAX]);
/* How much of it is in use, in hundredths of a per cent; 0 where nothing is known. */
uint32_t sandbox_memory_basis_points(const struct sandstorm_sandbox *sandbox);
uint32_t sandbox_disk_basis_points(const struct sandstorm_sandbox *sandbox);
/* Basis points as a whole per cent. */
uint32_t sandbox_percent(uint32_t basis_points);
/* It can run commands now. */
bool sandbox_is_ready(const struct sandstorm_sandbox *sandbox);
/* A heartbeat with metrics has come. */
bool sandbox_was_heard(const struct sandstorm_sandbox *sandbox);
