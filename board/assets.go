// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package board

import (
	"embed"
	"io/fs"
	"net/http"
	"path"
)

//go:embed assets
var embedded embed.FS

// contentTypes are those of the embedded files. Browsers run no script and take no style sheet of another type.
var contentTypes = map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".html": "text/html; charset=utf-8", ".svg": "image/svg+xml"}

// views are the pages that a browser can open. Each is the same file, which reads the address.
var views = []string{"", "fleet", "queue", "jobs", "job", "whatif"}

// addAssets adds a route for each embedded file. So no path of a request is ever a path of a file.
func (b *Board) addAssets() {
	entries, err := fs.ReadDir(embedded, "assets")
	if err != nil {
		panic(err) // It is a part of the program.
	}
	for _, entry := range entries {
		b.addFile("GET /assets/"+entry.Name(), entry.Name())
	}
	for _, view := range views {
		b.addFile("GET /"+view+map[bool]string{true: "{$}"}[view == ""], "index.html")
	}
}

func (b *Board) addFile(pattern, name string) {
	content, err := embedded.ReadFile("assets/" + name)
	if err != nil {
		panic(err) // It is a part of the program.
	}
	b.routes.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if b.options.Caller(w, r) == nil {
			return
		}
		w.Header().Set("Content-Type", contentTypes[path.Ext(name)])
		_, _ = w.Write(content) // The client may have gone.
	})
}
