// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package board

import (
	"crypto/rand"
	"crypto/subtle"
	"html/template"
	"net"
	"net/http"
	"strings"
	"sync"
)

// cookieName is the name of the cookie that a browser shows after it has shown the secret.
const cookieName = "trainyard-board"

// Door serves a handler on loopback, where each program of the machine and each page of a browser can knock. It lets in
// who has a secret: the address for a browser has one, which counts once. The browser gets a cookie for it, which no
// script can read, and which comes with no request of another site.
//
// Cookies know no ports: a browser would send the cookie to every server of this host. So the cookie is for a path that
// nobody can guess, below which everything is.
type Door struct {
	handler http.Handler
	// path is /NAME/, below which the handler is.
	path string
	// knocked is called after an address was used.
	knocked func()

	mu sync.Mutex
	// session is what the cookie has to be, secret that of the next address, and used that of the last one. Under mu.
	session, secret, used string
}

// NewDoor returns a Door. After the address of Address was used, knocked is called: whoever used it may not have been the
// user, and the user can open another browser.
func NewDoor(handler http.Handler, knocked func()) *Door {
	d := &Door{path: "/" + rand.Text() + "/", session: rand.Text(), secret: rand.Text(), knocked: knocked}
	d.handler = http.StripPrefix(strings.TrimSuffix(d.path, "/"), handler)
	return d
}

// Address returns the address for a browser, at a host and port. It works once.
func (d *Door) Address(host string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return "http://" + host + d.path + "enter?secret=" + d.secret
}

// ServeHTTP answers a request.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	protect(w.Header())
	switch {
	case !isLoopback(r.Host):
		d.close(w, "This address is not the board's.")
	case r.URL.Path == d.path+"enter" && r.Method == http.MethodGet:
		d.enter(w, r)
	case !d.knows(r):
		d.close(w, "This address does not work, or it has been used.")
	default:
		d.handler.ServeHTTP(w, r)
	}
}

// isLoopback is true for a host that only this machine can be. With the name of another host, which leads here by its
// DNS, a page of that host could ask for everything. The port may be another: ssh forwards it.
func isLoopback(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	return name == "localhost" || name == "127.0.0.1" || name == "::1"
}

// knows says whether a request has the cookie.
func (d *Door) knows(r *http.Request) bool {
	if !strings.HasPrefix(r.URL.Path, d.path) {
		return false
	}
	d.mu.Lock()
	session := d.session
	d.mu.Unlock()
	for _, cookie := range r.CookiesNamed(cookieName) {
		if equal(cookie.Value, session) {
			return true
		}
	}
	return false
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// enter gives the cookie for the secret, and leads to the board. A redirection would not do: if the user has followed a
// link of another page, the browser would not send the cookie with it.
func (d *Door) enter(w http.ResponseWriter, r *http.Request) {
	session, ok := d.exchange(r.URL.Query().Get("secret"))
	if !ok {
		d.close(w, "This address does not work, or it has been used. If you have not used it, somebody else has, whose access has ended now.")
		return
	}
	//nolint:gosec // The board is served by HTTP on this machine only: a Secure cookie would not come back.
	http.SetCookie(w, &http.Cookie{Name: cookieName, Value: session, Path: d.path, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	show(w, http.StatusOK, notice{Title: "Trainyard", Text: "The board opens.", Next: "./"})
	d.knocked()
}

// exchange returns the session for the secret. A secret that comes a second time is known to two. All who are in have to
// enter again then, because one of them may be somebody who has seen the address in the list of processes.
func (d *Door) exchange(secret string) (session string, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case equal(secret, d.secret):
		d.used, d.secret = d.secret, rand.Text()
		return d.session, true
	case d.used != "" && equal(secret, d.used):
		d.session = rand.Text()
	}
	return "", false
}

func (d *Door) close(w http.ResponseWriter, why string) {
	show(w, http.StatusForbidden, notice{Title: "Trainyard board", Text: why, Todo: "Use the address that the terminal has printed last, or run this again:", Command: "kubectl trainyard board"})
}

// notice is a page without the board's files, for who may not have them.
type notice struct{ Title, Text, Todo, Command, Next string }

var noticeTemplate = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">
{{with .Next}}<meta http-equiv="refresh" content="0;url={{.}}">{{end}}<title>{{.Title}}</title></head>
<body><main><h1>{{.Title}}</h1><p>{{.Text}}</p>{{with .Todo}}<p>{{.}}</p>{{end}}{{with .Command}}<pre>{{.}}</pre>{{end}}</main></body>
</html>
`))

func show(w http.ResponseWriter, code int, p notice) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_ = noticeTemplate.Execute(w, p) // The client may have gone.
}

// Unauthorized answers a request without credentials, which only a proxy in front could have sent with it.
func Unauthorized(w http.ResponseWriter) {
	protect(w.Header())
	w.Header().Set("Www-Authenticate", "Bearer")
	show(w, http.StatusUnauthorized, notice{
		Title: "Trainyard board", Text: "The board needs a token of the hub, and a browser has none. An authenticating proxy in front of this address can send one.",
		Todo: "Or open the board with your own kubeconfig:", Command: "kubectl trainyard board",
	})
}
