/* One connection of the HTTP front, which is one request and one answer. lws has parsed the request
 * when it comes here from orchestrator/http_front.c; what is not served is refused before its body
 * is read, the rest goes to its route as an exchange, and the answer comes back from any thread
 * (next: orchestrator/http_exchange.c). A connection may go while its exchange is with a route. */
#include "orchestrator/http_front-internal.h"

#include "common/clock.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define ANSWER_HEAD_MAX 512u
#define LENGTH_MAX      20u /* digits of a Content-Length, with their NUL */
#define RETRY_S         "5" /* told to clients when we are busy */

/* Answers. */

static void give_time(struct http_connection *connection, unsigned seconds)
{
    lws_set_timeout(connection->wsi, NO_PENDING_TIMEOUT, 0);
    lws_set_timer_usecs(connection->wsi, seconds * LWS_US_PER_SEC);
}

static int add_header(struct lws *wsi, enum lws_token_indexes name, const char *value,
                      unsigned char **at, unsigned char *end)
{
    return lws_add_http_header_by_token(wsi, name, (const unsigned char *)value, (int)strlen(value),
                                        at, end);
}

/* One header more, or a NULL value. -1 when there is no memory: the connection must go. */
static int answer(struct http_connection *connection, int status, enum lws_token_indexes name,
                  const char *value, const char *json)
{
    struct lws *wsi = connection->wsi;
    size_t json_len = strlen(json);
    connection->answer = malloc(LWS_PRE + ANSWER_HEAD_MAX + json_len);
    if (!connection->answer)
        return -1;
    unsigned char *start = connection->answer + LWS_PRE, *at = start, *end = at + ANSWER_HEAD_MAX;
    if (lws_add_http_common_headers(wsi, (unsigned)status, "application/json", json_len, &at,
                                    end) ||
        add_header(wsi, WSI_TOKEN_HTTP_CACHE_CONTROL, "no-store", &at, end) ||
        add_header(wsi, WSI_TOKEN_CONNECTION, "close", &at, end) ||
        (value && add_header(wsi, name, value, &at, end)) ||
        lws_finalize_http_header(wsi, &at, end))
        return -1;
    if (lws_hdr_total_length(wsi, WSI_TOKEN_HEAD_URI) == 0)
        at = (unsigned char *)mempcpy(at, json, json_len);
    connection->answer_size = (size_t)(at - start);
    connection->stage = HTTP_STAGE_ANSWER;
    give_time(connection, HTTP_IDLE_S);
    /* lws does not write either, while it does not read. */
    (void)lws_rx_flow_control(wsi, 1);
    (void)lws_callback_on_writable(wsi);
    return 0;
}

static void blame(struct http_front *front, const struct sockaddr_storage *peer,
                  enum http_blame how)
{
    static const uint64_t penalties[] = {
        [HTTP_BLAME_CLUMSY] = SOURCES_CLUMSY_US, [HTTP_BLAME_GUESSING] = SOURCES_GUESSING_US
    };
    if (front->config.penalties && how != HTTP_BLAME_NONE)
        http_sources_blame(front->sources, (const struct sockaddr *)peer, penalties[how],
                           monotonic_us());
}

/* The messages are constants of ours, without anything that JSON would escape. */
static int refuse_with(struct http_connection *connection, int status, enum err_code code,
                       enum lws_token_indexes name, const char *value, const char *message)
{
    char json[ANSWER_HEAD_MAX];
    (void)snprintf(json, sizeof(json), "{\"error\":{\"code\":\"%s\",\"message\":\"%s\"}}",
                   err_name(code), message);
    /* Whoever must wait already pays, and that we are busy is not their fault. */
    if (status < 500 && status != 429)
        blame(connection->front, &connection->peer, HTTP_BLAME_CLUMSY);
    return answer(connection, status, name, value, json);
}

static int refuse(struct http_connection *connection, int status, enum err_code code,
                  const char *message)
{
    return refuse_with(connection, status, code, WSI_TOKEN_COUNT, NULL, message);
}

static int refuse_busy(struct http_connection *connection)
{
    return refuse_with(connection, 503, ERR_UNAVAILABLE, WSI_TOKEN_HTTP_RETRY_AFTER, RETRY_S,
                       "too many requests wait for an answer; try again later");
}

static int refuse_penalised(struct http_connection *connection, uint64_t wait_us)
{
    uint64_t seconds = wait_us / 1000000u + 1, suppressed = 0;
    if (log_limit_pass(&connection->front->refused_log, monotonic_us(), &suppressed)) {
        char source[HTTP_SOURCE_MAX];
        http_peer_text(&connection->peer, source);
        log_warn("HTTP source refused after failed requests", LF_STR("source", source),
                 LF_UINT("for_s", seconds), LF_UINT("suppressed", suppressed));
    }
    char value[24], text[128];
    (void)snprintf(value, sizeof(value), "%llu", (unsigned long long)seconds);
    (void)snprintf(text, sizeof(text),
                   "too many failed requests came from this address; try again in %s s", value);
    return refuse_with(connection, 429, ERR_EXHAUSTED, WSI_TOKEN_HTTP_RETRY_AFTER, value, text);
}

/* Requests. */

static int dispatch(struct http_connection *connection)
{
    struct http_front *front = connection->front;
    struct http_exchange *exchange = connection->exchange;
    /* The body took its time; others may have come meanwhile. */
    if (front->pending >= HTTP_PENDING_MAX) {
        http_exchange_free(TAKE_PTR(connection->exchange));
        return refuse_busy(connection);
    }
    front->pending++;
    connection->stage = HTTP_STAGE_ROUTE;
    give_time(connection, HTTP_ANSWER_S);
    /* While it waits, lws 4.1 neither reads what else the peer sends nor looks away from it. So the
     * end of a peer that just stops is seen when we answer; a reset is seen at once. */
    (void)lws_rx_flow_control(connection->wsi, 0);
    exchange->route->handle(front->config.userdata, exchange);
    return 0;
}

int http_connection_body(struct http_connection *connection, const char *data, size_t size)
{
    struct http_exchange *exchange = connection->exchange;
    /* Refused already: lws reads on, until the answer is written. */
    if (connection->stage != HTTP_STAGE_BODY)
        return 0;
    if (size > exchange->size - exchange->received)
        return -1;
    if (size > 0)
        (void)memcpy(exchange->body + exchange->received, data, size);
    exchange->received += size;
    return 0;
}

int http_connection_body_end(struct http_connection *connection)
{
    if (connection->stage != HTTP_STAGE_BODY)
        return 0;
    return connection->exchange->received == connection->exchange->size ? dispatch(connection) : -1;
}

/* Empty when it is not there. A value that does not fit becomes one that nobody looks for. */
static void header_text(struct lws *wsi, enum lws_token_indexes name, char *ret, size_t size)
{
    ret[0] = '\0';
    if (lws_hdr_total_length(wsi, name) > 0 && lws_hdr_copy(wsi, ret, (int)size, name) < 0)
        (void)snprintf(ret, size, "too long");
}

/* lws takes any version, and does without Host. */
static bool speaks_http_1(struct lws *wsi)
{
    char version[16];
    header_text(wsi, WSI_TOKEN_HTTP, version, sizeof(version));
    return strcmp(version, "HTTP/1.0") == 0 ||
           (strcmp(version, "HTTP/1.1") == 0 && lws_hdr_total_length(wsi, WSI_TOKEN_HOST) > 0);
}

static bool is_json(struct lws *wsi)
{
    static const char json[] = "application/json";
    char type[128];
    header_text(wsi, WSI_TOKEN_HTTP_CONTENT_TYPE, type, sizeof(type));
    size_t len = strcspn(type, "; \t");
    return len == sizeof(json) - 1 && strncasecmp(type, json, len) == 0;
}

/* NULL with *ret_allow, when the path has other methods. */
static const struct http_route *find_route(const struct http_front *front, struct lws *wsi,
                                           const char **ret_allow)
{
    char *path = NULL;
    int len = 0;
    int method = lws_http_get_uri_and_method(wsi, &path, &len);
    bool get = false, post = false;
    for (const struct http_route *route = front->config.routes; route->path; route++) {
        if (strlen(route->path) != (size_t)len || memcmp(route->path, path, (size_t)len) != 0)
            continue;
        bool is_post = strcmp(route->method, "POST") == 0;
        if (method == (is_post ? LWSHUMETH_POST : LWSHUMETH_GET))
            return route;
        *(is_post ? &post : &get) = true;
    }
    *ret_allow = get && post ? "GET, POST" : get ? "GET" : post ? "POST" : NULL;
    return NULL;
}

static int send_continue(struct lws *wsi)
{
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    unsigned char buf[LWS_PRE + sizeof(text)];
    (void)memcpy(buf + LWS_PRE, text, sizeof(text));
    return lws_write(wsi, buf + LWS_PRE, sizeof(text) - 1, LWS_WRITE_HTTP_HEADERS) < 0 ? -1 : 0;
}

/* The headers are fine, and the body may come. */
static int take_request(struct http_connection *connection, const struct http_route *route,
                        size_t size)
{
    struct lws *wsi = connection->wsi;
    if (connection->front->pending >= HTTP_PENDING_MAX)
        return refuse_busy(connection);
    struct http_exchange *exchange =
        http_exchange_new(connection->front->mailbox, &connection->peer, size);
    if (!exchange)
        return -1;
    exchange->connection = connection;
    exchange->route = route;
    connection->exchange = exchange;
    if (lws_hdr_total_length(wsi, WSI_TOKEN_POST_URI) == 0)
        return dispatch(connection);
    /* lws tells of a body's end also when it has no bytes. */
    connection->stage = HTTP_STAGE_BODY;
    give_time(connection, HTTP_IDLE_S);
    return lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_EXPECT) > 0 ? send_continue(wsi) : 0;
}

/* `length` is of digits, or empty. */
static int check_body(struct http_connection *connection, const struct http_route *route,
                      const char *length)
{
    uint64_t size = strtoull(length, NULL, 10);
    if (strcmp(route->method, "POST") == 0) {
        if (length[0] == '\0')
            return refuse(connection, 411, ERR_INVALID, "the Content-Length header is missing");
        if (size > HTTP_BODY_MAX)
            return refuse(connection, 413, ERR_EXHAUSTED,
                          "the body is larger than this port takes");
        if (!is_json(connection->wsi))
            return refuse(connection, 415, ERR_INVALID,
                          "the Content-Type must be application/json");
    } else if (size > 0) {
        return refuse(connection, 400, ERR_INVALID, "only a POST request may have a body");
    }
    return take_request(connection, route, size);
}

int http_connection_requested(struct http_connection *connection)
{
    struct http_front *front = connection->front;
    struct lws *wsi = connection->wsi;
    /* It carries one, and lws must not persuade us of another. */
    if (connection->stage != HTTP_STAGE_HEAD)
        return -1;
    uint64_t wait_us =
        front->config.penalties
            ? http_sources_wait_us(front->sources, (struct sockaddr *)&connection->peer,
                                   monotonic_us())
            : 0;
    if (wait_us > 0)
        return refuse_penalised(connection, wait_us);
    /* lws would take "-1", "2x" and whatever two headers say together. */
    char length[LENGTH_MAX];
    header_text(wsi, WSI_TOKEN_HTTP_CONTENT_LENGTH, length, sizeof(length));
    if (!speaks_http_1(wsi) || length[strspn(length, "0123456789")] != '\0')
        return refuse(connection, 400, ERR_INVALID, "this is not a request of HTTP/1");
    if (lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_TRANSFER_ENCODING) > 0)
        return refuse(connection, 411, ERR_INVALID,
                      "the body must come with a Content-Length, and not in chunks");
    const char *allow = NULL;
    const struct http_route *route = find_route(front, wsi, &allow);
    if (allow)
        return refuse_with(connection, 405, ERR_UNIMPLEMENTED, WSI_TOKEN_HTTP_ALLOW, allow,
                           "this path does not take that method");
    if (!route)
        return refuse(connection, 404, ERR_NOT_FOUND, "there is nothing at this path");
    return check_body(connection, route, length);
}

int http_connection_writable(struct http_connection *connection)
{
    if (connection->stage != HTTP_STAGE_ANSWER)
        return 0;
    CLEANUP_FREE unsigned char *text = TAKE_PTR(connection->answer);
    /* All of it is written: lws closes, and gives the peer a moment to take it. */
    if (!text || lws_write(connection->wsi, text + LWS_PRE, connection->answer_size,
                           LWS_WRITE_HTTP_FINAL) < 0)
        return -1;
    (void)lws_callback_on_writable(connection->wsi);
    return 0;
}

void http_front_take_answers(struct http_front *front)
{
    struct http_exchange *exchange = http_mailbox_take(front->mailbox);
    while (exchange) {
        struct http_exchange *next = exchange->next;
        struct http_connection *connection = exchange->connection;
        front->pending--;
        /* Also when the peer did not wait for it, else guessing would be free for those. */
        blame(front, &exchange->peer, exchange->blame);
        if (connection) {
            connection->exchange = NULL;
            const char *retry = exchange->status == 503 ? RETRY_S : NULL;
            if (!exchange->json || answer(connection, exchange->status, WSI_TOKEN_HTTP_RETRY_AFTER,
                                          retry, exchange->json) < 0)
                lws_set_timeout(connection->wsi, PENDING_TIMEOUT_USER_OK, LWS_TO_KILL_ASYNC);
        }
        http_exchange_free(exchange);
        exchange = next;
    }
}
