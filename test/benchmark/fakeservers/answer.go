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
	"k8s.io/client-go/kubernetes/scheme"
)

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
