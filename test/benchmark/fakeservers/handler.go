// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeservers

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

// handler answers the requests to one worker.
type handler struct {
	store *store
	token string
}

// target is what a request is about.
type target struct {
	kind *kind
	// key has no name for lists and creations.
	key         types.NamespacedName
	subresource string
}

// ServeHTTP answers a request.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+h.token {
		refuse(w, apierrors.NewUnauthorized("Unauthorized"))
		return
	}
	of, found := parse(r.URL.Path)
	switch {
	case !found && r.Method == http.MethodGet && discover(w, r):
	case !found || of.subresource != "" && (of.subresource != "status" || !of.kind.status):
		http.Error(w, "404 page not found", http.StatusNotFound)
	case of.key.Name == "":
		h.collection(w, r, of)
	default:
		h.single(w, r, of)
	}
}

// parse finds out what a path is about.
func parse(path string) (target, bool) {
	for _, k := range kinds {
		rest, ok := strings.CutPrefix(path, k.path()+"/")
		if !ok {
			continue
		}
		parts := strings.Split(rest, "/")
		of := target{kind: k}
		if k.namespaced && len(parts) > 2 && parts[0] == "namespaces" {
			of.key.Namespace, parts = parts[1], parts[2:]
		}
		if k == namespaces && len(parts) > 2 && parts[2] != "status" {
			continue // It is about something in the namespace.
		}
		if parts[0] != k.plural || len(parts) > 3 || k.namespaced && of.key.Namespace == "" && len(parts) > 1 {
			continue
		}
		if len(parts) > 1 {
			of.key.Name = parts[1]
		}
		if len(parts) > 2 {
			of.subresource = parts[2]
		}
		return of, true
	}
	return target{}, false
}

func (h *handler) collection(w http.ResponseWriter, r *http.Request, of target) {
	query := r.URL.Query()
	switch {
	case r.Method == http.MethodGet && (query.Get("watch") == "1" || query.Get("watch") == "true"):
		h.watch(w, r, of)
	case r.Method == http.MethodGet:
		h.list(w, r, of)
	case r.Method == http.MethodPost && (of.key.Namespace != "" || !of.kind.namespaced):
		h.create(w, r, of)
	default:
		refuse(w, apierrors.NewMethodNotSupported(of.kind.resource(), strings.ToLower(r.Method)))
	}
}

func (h *handler) single(w http.ResponseWriter, r *http.Request, of target) {
	switch r.Method {
	case http.MethodGet:
		h.get(w, r, of)
	case http.MethodPut:
		h.replace(w, r, of)
	case http.MethodPatch:
		h.patch(w, r, of)
	case http.MethodDelete:
		h.delete(w, r, of)
	default:
		refuse(w, apierrors.NewMethodNotSupported(of.kind.resource(), strings.ToLower(r.Method)))
	}
}

const (
	jsonType     = "application/json"
	protobufType = "application/vnd.kubernetes.protobuf"
	// maxBody is the limit of an API server.
	maxBody = 3 << 20
)

// wantsPartial says whether a client wants metadata only, and knows it as JSON.
func wantsPartial(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		media, parameters, err := mime.ParseMediaType(part)
		if err != nil || media != jsonType && media != "*/*" {
			continue
		}
		return strings.HasPrefix(parameters["as"], "PartialObjectMetadata")
	}
	return false
}

// shown is an object in the form that a client wants.
func shown(r *http.Request, o *object) map[string]any {
	if wantsPartial(r) {
		return o.partial()
	}
	return o.content()
}

func answer(w http.ResponseWriter, code int, body any) { answerAs(w, jsonType, code, body) }

func answerAs(w http.ResponseWriter, contentType string, code int, body any) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // A client that is gone needs no answer.
}

// refuse answers with an error.
func refuse(w http.ResponseWriter, err error) {
	status := statusOf(err)
	if seconds := status.Details; seconds != nil && seconds.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", "1")
	}
	answer(w, int(status.Code), status)
}

func statusOf(err error) metav1.Status {
	var api apierrors.APIStatus
	if !errors.As(err, &api) {
		api = apierrors.NewInternalError(err)
	}
	status := api.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return status
}

// decode reads an object from the body of a request, as JSON (which YAML's flow style is, too, as far as clients send
// it) or protobuf.
func decode(r *http.Request) (map[string]any, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, apierrors.NewBadRequest(err.Error())
	case len(body) > maxBody:
		return nil, apierrors.NewRequestEntityTooLargeError("limit is 3145728")
	case len(body) == 0:
		return map[string]any{}, nil
	}
	if strings.HasPrefix(r.Header.Get("Content-Type"), protobufType) {
		typed, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	}
	content := map[string]any{}
	if err := json.Unmarshal(body, &content); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return normalized(content).(map[string]any), nil
}

// normalized makes integers of whole numbers, as unstructured objects have them.
func normalized(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key := range value {
			value[key] = normalized(value[key])
		}
	case []any:
		for i := range value {
			value[i] = normalized(value[i])
		}
	case float64:
		if whole := int64(value); float64(whole) == value {
			return whole
		}
	}
	return value
}
