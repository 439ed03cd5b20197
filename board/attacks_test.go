// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package board_test

import (
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/board"
	"github.com/trainyard/trainyard/test/check"
)

const host = "127.0.0.1:4321"

// door is a board on loopback, as the plugin serves it.
type door struct {
	*board.Door
	world *world
	used  int
}

func newDoor(t *testing.T) *door {
	t.Helper()
	d := &door{world: newWorld(t)}
	d.Door = board.NewDoor(d.world.Board, func() { d.used++ })
	return d
}

// send sends a request. header has pairs of names and values; Host is one.
func (d *door) send(t *testing.T, method, path string, header ...string) *http.Response {
	t.Helper()
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader("x=y")
	}
	r := httptest.NewRequestWithContext(t.Context(), method, "http://"+host+path, body)
	for i := 0; i < len(header); i += 2 {
		if r.Header.Add(header[i], header[i+1]); header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w.Result()
}

// enter uses an address, and returns the path of the board and the cookie.
func (d *door) enter(t *testing.T, address string) (base, cookie string) {
	t.Helper()
	u, err := url.Parse(address)
	check.Must(t, err)
	res := d.send(t, http.MethodGet, u.RequestURI(), "Sec-Fetch-Site", "cross-site")
	check.Equal(t, http.StatusOK, res.StatusCode, "code of the address")
	cookies := res.Cookies()
	if len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode || cookies[0].Path != strings.TrimSuffix(u.Path, "enter") {
		t.Fatalf("cookies are %v", cookies)
	}
	if strings.Contains(cookies[0].Value, u.Query().Get("secret")) {
		t.Error("the cookie is the secret of the address, which others can have seen")
	}
	return cookies[0].Path, cookies[0].Name + "=" + cookies[0].Value
}

func TestDoor(t *testing.T) {
	d := newDoor(t)
	base, cookie := d.enter(t, d.Address(host))
	for _, path := range []string{"", "jobs?namespace=team", "assets/app.js", "api/fleet", "api/me"} {
		for name, header := range map[string][]string{
			"Same": {"Sec-Fetch-Site", "same-origin"}, "Typed": {"Sec-Fetch-Site", "none"}, "Old": {"Origin", "http://" + host}, "Neither": nil,
			"Visit":     {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Dest", "document", "Sec-Fetch-Mode", "navigate"},
			"Forwarded": {"Host", "localhost:8080", "Origin", "http://localhost:8080"},
		} {
			if name == "Visit" && strings.ContainsAny(path, "/") { // A page of another origin leads to pages, and to nothing else.
				continue
			}
			if res := d.send(t, http.MethodGet, base+path, append(header, "Cookie", cookie)...); res.StatusCode != http.StatusOK {
				t.Errorf("%s %s: %s", name, path, res.Status)
			}
		}
	}
	check.Equal(t, 1, d.used, "addresses that were used")
}

// TestOtherPages: what a page of another origin sends is refused, with the cookie of the user.
func TestOtherPages(t *testing.T) {
	d := newDoor(t)
	base, cookie := d.enter(t, d.Address(host))
	for name, tc := range map[string]struct {
		method, path string
		header       []string
	}{
		"Fetch":       {path: "api/fleet", header: []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors", "Origin", "https://evil.example"}},
		"OtherPort":   {path: "api/fleet", header: []string{"Sec-Fetch-Site", "same-site", "Origin", "http://127.0.0.1:8888"}},
		"Old":         {path: "api/fleet", header: []string{"Origin", "https://evil.example"}},
		"OldPort":     {path: "api/fleet", header: []string{"Origin", "http://127.0.0.1:8888"}},
		"Null":        {path: "api/fleet", header: []string{"Origin", "null"}},
		"Two":         {path: "api/fleet", header: []string{"Origin", "http://" + host, "Origin", "https://evil.example"}},
		"EventSource": {path: "api/stream/jobs", header: []string{"Sec-Fetch-Site", "cross-site", "Accept", "text/event-stream", "Origin", "https://evil.example"}},
		"Form":        {method: http.MethodPost, path: "api/whatif", header: []string{"Sec-Fetch-Site", "cross-site", "Content-Type", "text/plain", "Origin", "https://evil.example"}},
		"TypedForm":   {method: http.MethodPost, path: "api/whatif", header: []string{"Sec-Fetch-Site", "none"}},
		"Frame":       {path: "", header: []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Dest", "iframe"}},
		"Script":      {path: "assets/app.js", header: []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Dest", "script"}},
		"Link":        {path: "api/fleet", header: []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Dest", "document", "Sec-Fetch-Mode", "navigate"}},
		"FrameOfPage": {path: "jobs", header: []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Dest", "iframe", "Sec-Fetch-Mode", "navigate"}},
		"FormOfPage":  {method: http.MethodPost, path: "api/whatif", header: []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Dest", "document", "Sec-Fetch-Mode", "navigate"}},
		"Rebound":     {path: "api/fleet", header: []string{"Host", "evil.example:4321", "Sec-Fetch-Site", "same-origin"}},
		"ReboundName": {path: "", header: []string{"Host", "127.0.0.1.evil.example"}},
		"ReboundIP":   {path: "", header: []string{"Host", "192.0.2.7:4321"}},
		"NoHost":      {path: "", header: []string{"Host", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.method == "" {
				tc.method = http.MethodGet
			}
			res := d.send(t, tc.method, base+tc.path, append(tc.header, "Cookie", cookie)...)
			check.Equal(t, http.StatusForbidden, res.StatusCode, "code")
			check.Equal(t, "", res.Header.Get("Access-Control-Allow-Origin"), "who may read the answer")
		})
	}
}

// TestSecret: without the cookie nothing is shown, and an address works once.
func TestSecret(t *testing.T) {
	d := newDoor(t)
	address := d.Address(host)
	base, cookie := d.enter(t, address)
	u, err := url.Parse(address)
	check.Must(t, err)
	for name, tc := range map[string][]string{
		"None": {base}, "Wrong": {base, "Cookie", "trainyard-board=x"}, "Empty": {base, "Cookie", "trainyard-board="}, "Asset": {base + "assets/app.js"},
		"SecretElsewhere": {base + "?secret=" + u.Query().Get("secret")}, "SecretAsCookie": {base, "Cookie", "trainyard-board=" + u.Query().Get("secret")},
		"WrongSecret": {base + "enter?secret=x"}, "NoSecret": {base + "enter"}, "EmptySecret": {base + "enter?secret="},
		"OtherPath": {"/api/fleet", "Cookie", cookie}, "Root": {"/", "Cookie", cookie}, "PostEnter": {base + "enter"},
	} {
		method := map[bool]string{true: http.MethodPost, false: http.MethodGet}[name == "PostEnter"]
		if res := d.send(t, method, tc[0], tc[1:]...); res.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %s", name, res.Status)
		}
	}
	next := d.Address(host)
	if next == address {
		t.Fatal("the next address is the used one")
	}
	d.enter(t, next)
	check.Equal(t, http.StatusOK, d.send(t, http.MethodGet, base, "Cookie", cookie).StatusCode, "code for the first browser")
	res := d.send(t, http.MethodGet, strings.TrimPrefix(next, "http://"+host))
	check.Equal(t, http.StatusForbidden, res.StatusCode, "code of an address that was used")
	check.Equal(t, http.StatusForbidden, d.send(t, http.MethodGet, base, "Cookie", cookie).StatusCode, "code for those who were in when an address came twice")
	check.Equal(t, 2, d.used, "addresses that were used")
}

// TestPaths: no path leads to a file that is none of the board's, or to another handler.
func TestPaths(t *testing.T) {
	d := newDoor(t)
	base, cookie := d.enter(t, d.Address(host))
	for _, path := range []string{
		"../", "../api/fleet", "assets/", "assets", "assets/../board.go", "assets/..%2fboard.go", "assets/%2e%2e/board.go", "assets//app.js", "./jobs",
		"assets/app.js/", "assets/app.js%00.css", "api", "api/", "api/secrets", "api/stream/", "jobs/", "etc/passwd", "enter/", "..%5c..%5cboard.go", "index.html",
	} {
		res := d.send(t, http.MethodGet, base+path, "Cookie", cookie)
		if res.StatusCode != http.StatusForbidden && res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions} {
		for _, path := range []string{"", "api/fleet", "api/job", "assets/app.js"} {
			res := d.send(t, method, base+path, "Cookie", cookie, "Sec-Fetch-Site", "same-origin")
			check.Equal(t, http.StatusMethodNotAllowed, res.StatusCode, "%s %s", method, path)
		}
	}
}

// TestPolicy: each answer has the headers that keep markup in it from doing anything.
func TestPolicy(t *testing.T) {
	d := newDoor(t)
	base, cookie := d.enter(t, d.Address(host))
	for _, path := range []string{base, base + "api/fleet", base + "api/none", base + "api/job?namespace=..&name=x", "/", base + "enter?secret=x", base + "assets/board.css"} {
		header := d.send(t, http.MethodGet, path, "Cookie", cookie).Header
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'"} {
			if !strings.Contains(header.Get("Content-Security-Policy"), part) || strings.Contains(header.Get("Content-Security-Policy"), "unsafe") {
				t.Errorf("%s: the policy is %q", path, header.Get("Content-Security-Policy"))
			}
		}
		check.Equal(t, "nosniff", header.Get("X-Content-Type-Options"), "sniffing of %s", path)
		check.Equal(t, "no-referrer", header.Get("Referrer-Policy"), "referrer of %s", path)
		check.Equal(t, "no-store", header.Get("Cache-Control"), "caching of %s", path)
	}
}

// TestAssets: the board's own files need nothing that the policy forbids, and make no markup of text.
func TestAssets(t *testing.T) {
	assets := os.DirFS("assets")
	inline := regexp.MustCompile(`(?i)\son[a-z]+=|<style|style=|javascript:|<script>|https?://[^w]`)
	markup := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser|createContextualFragment|srcdoc|setHTML|\.cssText|import\(`)
	check.Must(t, fs.WalkDir(assets, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(assets, path)
		if found := inline.FindString(string(text)); strings.HasSuffix(path, ".html") && found != "" {
			t.Errorf("%s has %q", path, found)
		}
		if found := markup.FindString(string(text)); found != "" {
			t.Errorf("%s has %q", path, found)
		}
		return err
	}))
}

// TestNames: a name that no object can have never reaches the hub.
func TestNames(t *testing.T) {
	w := newWorld(t)
	w.hub = func(_ http.ResponseWriter, r *http.Request) { t.Errorf("the hub was asked for %s", r.URL) }
	for _, path := range []string{
		"/api/job", "/api/job?namespace=team", "/api/job?namespace=..&name=x", "/api/job?namespace=team&name=a/b", "/api/job?namespace=team&name=..",
		"/api/pods?namespace=%2e%2e&name=x", "/api/log?namespace=team&name=x&pod=..%2f..%2fsecrets&container=c", "/api/log?namespace=team&name=x&pod=p",
	} {
		code, body := w.get(t, path)
		check.Equal(t, http.StatusBadRequest, code, "%s: %s", path, body)
	}
}
