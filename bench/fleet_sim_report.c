/* The figures of a simulated fleet: what was sent and what it took on the wire, from the time when
 * everybody was connected. The wire is what TCP carried, TLS and HTTP/2 with its pings included, by
 * TCP_INFO (tcp(7)) of the connections that are open; called by bench/fleet_sim.c. */
#include "bench/fleet_sim.h"

#include "common/clock.h"
#include "common/file.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <inttypes.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* The port that a socket of ours is connected to; 0 where it is none. */
static int peer_port(int fd)
{
    struct sockaddr_storage peer = { 0 };
    socklen_t size = sizeof(peer);
    if (getpeername(fd, (struct sockaddr *)&peer, &size) < 0)
        return 0;
    if (peer.ss_family == AF_INET)
        return ntohs(((const struct sockaddr_in *)&peer)->sin_port);
    if (peer.ss_family == AF_INET6)
        return ntohs(((const struct sockaddr_in6 *)&peer)->sin6_port);
    return 0;
}

static void count_wire(const struct sim *sim, uint64_t *ret_sent, uint64_t *ret_received)
{
    const char *colon = strrchr(sim->config->endpoint, ':');
    int port = colon ? (int)strtol(colon + 1, NULL, 10) : 0;
    *ret_sent = *ret_received = 0;
    DIR *fds = opendir("/proc/self/fd");
    if (!fds)
        return;
    for (const struct dirent *entry = readdir(fds); entry; entry = readdir(fds)) {
        struct tcp_info info = { 0 };
        socklen_t size = sizeof(info);
        int fd = (int)strtol(entry->d_name, NULL, 10);
        if (*entry->d_name == '.' || peer_port(fd) != port ||
            getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) < 0)
            continue;
        *ret_sent += info.tcpi_bytes_sent;
        *ret_received += info.tcpi_bytes_received;
    }
    (void)closedir(fds);
}

void sim_report_begin(struct sim *sim)
{
    struct sim_figures *figures = &sim->figures;
    figures->connected_us = monotonic_us();
    figures->heartbeats = figures->heartbeat_bytes = figures->reconnects = 0;
    count_wire(sim, &figures->wire_sent, &figures->wire_received);
}

static double ratio(uint64_t sum, uint64_t count)
{
    return count ? (double)sum / (double)count : 0;
}

int sim_report_end(struct sim *sim, struct err *err)
{
    const struct sim_figures *figures = &sim->figures;
    uint64_t sent, received;
    count_wire(sim, &sent, &received);
    char text[1024];
    double seconds = (double)(monotonic_us() - figures->connected_us) / 1e6;
    /* A connection that was cut takes its numbers with it. */
    bool whole = figures->reconnects == 0 && sent >= figures->wire_sent;
    int n = snprintf(text, sizeof(text),
                     "{\"agents\":%" PRIu64 ",\"connected\":%u,\"enrol_s\":%.3f,\"connect_s\":%.3f,"
                     "\"seconds\":%.3f,\"heartbeats\":%" PRIu64 ",\"heartbeat_bytes\":%.1f,"
                     "\"wire_sent_per_heartbeat\":%.1f,\"wire_received_per_heartbeat\":%.1f,"
                     "\"reconnects\":%" PRIu64 ",\"commands\":%" PRIu64 "}\n",
                     sim->config->count, sim->active,
                     (double)(figures->enrolled_us - figures->began_us) / 1e6,
                     (double)(figures->connected_us - figures->began_us) / 1e6, seconds,
                     figures->heartbeats, ratio(figures->heartbeat_bytes, figures->heartbeats),
                     whole ? ratio(sent - figures->wire_sent, figures->heartbeats) : -1.0,
                     whole ? ratio(received - figures->wire_received, figures->heartbeats) : -1.0,
                     figures->reconnects, figures->commands);
    (void)fputs(text, stdout);
    (void)fflush(stdout);
    if (!sim->config->report)
        return 0;
    return file_write_atomic(sim->config->report, text, (size_t)n, 0600, err);
}
