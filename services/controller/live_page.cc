#include "services/controller/live_page.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/http_error.h"
#include "services/controller/page_files.h"

namespace stria {
namespace {

constexpr std::string_view kIndex = "index.html";

// Nothing from elsewhere, nothing inline, no frames around it, and no text that becomes markup.
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'";

std::string ContentType(std::string_view name) {
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  return "text/html; charset=utf-8";
}

HttpResponse FileNamed(std::string_view name) {
  const auto file = std::find_if(std::begin(kPageFiles), std::end(kPageFiles), [&](const PageFile& f) { return f.name == name; });
  if (file == std::end(kPageFiles)) return ErrorResponse(404, absl::StrCat("the live page has no file '", std::string(name), "'"), "", "", "unknown_path");
  HttpResponse response;
  response.content_type = ContentType(name);
  response.body = std::string(file->text);
  response.headers = {{"Content-Security-Policy", kPolicy},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cache-Control", "no-cache"}};
  return response;
}

}  // namespace

bool IsLivePage(std::string_view path) { return path == "/" || path.starts_with("/page/"); }

void AddLivePage(HttpServer& server) {
  server.Route("GET", "/", [](HttpExchange& exchange) -> boost::asio::awaitable<void> {
    HttpResponse response = FileNamed(kIndex);
    co_await exchange.Respond(std::move(response));
  });
  server.Route("GET", "/page/{}", [](HttpExchange& exchange) -> boost::asio::awaitable<void> {
    HttpResponse response = FileNamed(exchange.request().path_args[0]);
    co_await exchange.Respond(std::move(response));
  });
}

}  // namespace stria
