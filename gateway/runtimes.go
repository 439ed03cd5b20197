// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/trainyard/trainyard/remote/bounded"
)

// runtimesAdvice follows the hub's words to who may not read ClusterTrainingRuntimes. The Kubeflow SDK reads them before
// it does anything else, and its users see these words only.
const runtimesAdvice = `; an admin of the hub permits it to everybody with "kubectl apply -k config/users-runtimes", ` +
	`or with hub.users.runtimes=true of the chart`

// readsRuntimes says whether a request is one that config/users-runtimes permits.
func readsRuntimes(info *apirequest.RequestInfo) bool {
	return info.IsResourceRequest && info.APIGroup == trainer.GroupVersion.Group && info.Resource == "clustertrainingruntimes" &&
		info.Subresource == "" && slices.Contains([]string{"get", "list", "watch"}, info.Verb)
}

// adviseOnRuntimes adds the advice to the message of a 403. What it does not understand passes as it is.
func adviseOnRuntimes(res *http.Response) error {
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")) // After an error it is none that is known.
	if res.StatusCode != http.StatusForbidden || kind != typeJSON || res.Header.Get("Content-Encoding") != "" {
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(res.Body, bounded.MaxSmall)) // A part is no Status, and passes with the error.
	changed := withAdvice(body, runtimesAdvice)
	if changed == nil {
		res.Body = &readAgain{Reader: io.MultiReader(bytes.NewReader(body), res.Body), Closer: res.Body}
		return nil
	}
	res.Body = &readAgain{Reader: bytes.NewReader(changed), Closer: res.Body}
	res.ContentLength = int64(len(changed))
	res.Header.Set("Content-Length", strconv.Itoa(len(changed)))
	return nil
}

// withAdvice returns a Status with more words, nil if the body is none.
func withAdvice(body []byte, advice string) []byte {
	var whole fields
	var words struct{ Kind, Message string }
	if json.Unmarshal(body, &whole) != nil || json.Unmarshal(body, &words) != nil || words.Kind != "Status" {
		return nil
	}
	whole["message"] = quoted(words.Message + advice)
	return append(whole.raw(), '\n')
}

// readAgain is a body of which a part was read.
type readAgain struct {
	io.Reader
	io.Closer
}
