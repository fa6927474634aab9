// The live page: static files of page/, built into the binary. They hold no data, so they need no token; what they show they ask of the
// admin API with the reader's.
#pragma once

#include <string_view>

#include "services/common/http_server.h"

namespace stria {

bool IsLivePage(std::string_view path);
// GET / and GET /page/{}. Each answer forbids the page everything but its own files and this server's API (Content-Security-Policy).
void AddLivePage(HttpServer& server);

}  // namespace stria
