/* An orchestrator's side for tests of the client: a server on a loopback port, on a thread of its
 * own, because the client library turns its own loop. The test gives the methods, which run on that
 * thread; what they share with the test is written before the call and read after it. */
#pragma once

#include "common/rpc_server.h"
#include "orchestrator/ca.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>

#define SERVICE_DOMAIN "test.example.com"

struct service {
    char dir[64]; /* holds ca/, server/ and what else the test puts there */
    struct ca *ca;
    char endpoint[64];
    const struct rpc_method *methods;
    void *userdata;
    struct loop *loop;
    struct rpc_pump *pump;
    struct rpc_server *server;
    struct rpc_creds creds;
    pthread_t thread;
    sem_t ready;
    struct loop_post stop;
    bool running;
};

static inline void service_drained(void *userdata)
{
    loop_quit(((struct service *)userdata)->loop);
}

static inline void service_stop_on_loop(struct loop_post *post)
{
    struct service *service = CONTAINER_OF(post, struct service, stop);
    rpc_server_drain(service->server, 0, service_drained, service);
}

/* Everybody with a certificate may do everything here. */
static inline void service_guard(void *userdata, const struct rpc_method *method,
                                 const ProtobufCMessage *request, struct rpc_ticket *ticket)
{
    (void)userdata;
    (void)method;
    (void)request;
    rpc_ticket_admit(ticket);
}

static inline void *service_thread(void *argument)
{
    struct service *service = argument;
    struct err err = { 0 };
    const struct rpc_server_config config = {
        .listen = "127.0.0.1:0",
        .trust_domain = SERVICE_DOMAIN,
        .creds = &service->creds,
        .methods = service->methods,
        .guard = service_guard,
        .userdata = service->userdata,
    };
    service->running = loop_new(&service->loop, &err) == 0 &&
                       rpc_pump_new(service->loop, &service->pump, &err) == 0 &&
                       rpc_server_new(service->pump, &config, &service->server, &err) == 0;
    if (service->running)
        (void)snprintf(service->endpoint, sizeof(service->endpoint), "127.0.0.1:%d",
                       rpc_server_port(service->server));
    (void)sem_post(&service->ready);
    if (service->running && loop_run(service->loop, &err) < 0)
        (void)fprintf(stderr, "the service's loop ended: %s\n", err.text);
    rpc_server_free(service->server);
    rpc_pump_free(service->pump);
    loop_free(service->loop);
    return NULL;
}

/* The directory is there; `methods` and `userdata` too. */
static inline void service_start(struct service *service)
{
    static const char *const names[] = { "127.0.0.1" };
    struct err err = { 0 };
    char path[80];
    (void)snprintf(path, sizeof(path), "%s/ca", service->dir);
    cr_assert_eq(ca_create(path, SERVICE_DOMAIN, &err), 0, "%s", err.text);
    cr_assert_eq(ca_open(path, &service->ca, &err), 0, "%s", err.text);
    (void)snprintf(path, sizeof(path), "%s/server", service->dir);
    cr_assert_eq(ca_issue_server(service->ca, path, names, 1, 3600, &err), 0, "%s", err.text);
    cr_assert_eq(rpc_creds_load(path, &service->creds, &err), 0, "%s", err.text);
    cr_assert_eq(sem_init(&service->ready, 0, 0), 0);
    service->stop.fn = service_stop_on_loop;
    cr_assert_eq(pthread_create(&service->thread, NULL, service_thread, service), 0);
    while (sem_wait(&service->ready) < 0)
        ;
    cr_assert(service->running, "the service does not start");
}

static inline void service_stop(struct service *service)
{
    loop_post(service->loop, &service->stop);
    cr_assert_eq(pthread_join(service->thread, NULL), 0);
    rpc_creds_clear(&service->creds);
    ca_free(service->ca);
    (void)sem_destroy(&service->ready);
}
