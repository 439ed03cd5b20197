// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"

	fieldselector "k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// TestRoutes says for each kind of request what is done with it.
func TestRoutes(t *testing.T) {
	const pods = "/api/v1/namespaces/team/pods"
	for name, tc := range map[string]struct {
		method, uri string
		want        route
	}{
		"List":             {uri: pods, want: list},
		"ListAll":          {uri: "/api/v1/pods", want: list},
		"ListOne":          {uri: pods + "?fieldSelector=metadata.name%3Da", want: list},
		"Watch":            {uri: pods + "?watch=true", want: watch},
		"PythonWatch":      {uri: pods + "?watch=True", want: watch},
		"WatchByNumber":    {uri: pods + "?watch=1", want: watch},
		"WatchWithout":     {uri: pods + "?watch", want: watch},
		"WatchEmpty":       {uri: pods + "?watch=", want: watch},
		"WatchYes":         {uri: pods + "?watch=yes", want: watch},
		"NoWatch":          {uri: pods + "?watch=false", want: list},
		"OldWatch":         {uri: "/api/v1/watch/namespaces/team/pods", want: watch},
		"OldWatchOfLog":    {uri: "/api/v1/watch/namespaces/team/pods/a/log", want: toHub},
		"OldWatchOfOne":    {uri: "/api/v1/watch/namespaces/team/pods/a", want: watch},
		"Get":              {uri: pods + "/a", want: getPod},
		"Head":             {method: http.MethodHead, uri: pods + "/a", want: getPod},
		"Log":              {uri: pods + "/a/log?follow=true", want: readLog},
		"ExecGet":          {uri: pods + "/a/exec", want: stream},
		"ExecPost":         {method: http.MethodPost, uri: pods + "/a/exec", want: stream},
		"Attach":           {uri: pods + "/a/attach", want: stream},
		"PortForward":      {method: http.MethodPost, uri: pods + "/a/portforward", want: stream},
		"Create":           {method: http.MethodPost, uri: pods, want: toHub},
		"Delete":           {method: http.MethodDelete, uri: pods + "/a", want: changePod},
		"DeleteCollection": {method: http.MethodDelete, uri: pods, want: toHub},
		"Patch":            {method: http.MethodPatch, uri: pods + "/a", want: changePod},
		"Debug":            {method: http.MethodPatch, uri: pods + "/a/ephemeralcontainers", want: changePod},
		"Evict":            {method: http.MethodPost, uri: pods + "/a/eviction", want: changePod},
		"Status":           {method: http.MethodPut, uri: pods + "/a/status", want: changePod},
		"ReadStatus":       {uri: pods + "/a/status", want: toHub},
		"Proxy":            {uri: pods + "/a/proxy/x", want: toHub},
		"Events":           {uri: "/api/v1/namespaces/team/events", want: list},
		"NewEvents":        {uri: "/apis/events.k8s.io/v1/namespaces/team/events", want: list},
		"WatchEvents":      {uri: "/apis/events.k8s.io/v1/events?watch=1", want: watch},
		"OneEvent":         {uri: "/api/v1/namespaces/team/events/a", want: toHub},
		"Secrets":          {uri: "/api/v1/namespaces/team/secrets", want: toHub},
		"TrainJobs":        {uri: "/apis/trainer.kubeflow.org/v1alpha1/trainjobs", want: toHub},
		"OtherPods":        {uri: "/apis/metrics.k8s.io/v1/namespaces/team/pods", want: toHub},
		"Discovery":        {uri: "/api/v1", want: toHub},
		"Version":          {uri: "/version", want: toHub},
		"Root":             {uri: "/", want: toHub},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.method == "" {
				tc.method = http.MethodGet
			}
			r, err := http.NewRequestWithContext(t.Context(), tc.method, "https://gateway.example.com"+tc.uri, nil)
			check.Must(t, err)
			_, to, err := parse(r)
			check.Must(t, err)
			check.Equal(t, tc.want, to, "route of %s %s", tc.method, tc.uri)
		})
	}
}

// TestVersions: a version that was made here is read back, and no other is taken for one.
func TestVersions(t *testing.T) {
	v := versions{ofHub: "12", "gpu-east": "7", "gpu.west": "99"}
	check.Equal(t, "trainyard/:12/gpu-east:7/gpu.west:99", v.String(), "text")
	again, ok := parseVersions(v.String())
	check.Equal(t, true, ok, "understood")
	check.Diff(t, v, again, "versions")
	for _, text := range []string{"", "0", "12", "trainyard/a", "trainyard/a:", "trainyard/a:x", "trainyard/a:1:2", "other/a:1", "trainyard/a:-1", "trainyard/a:1/"} {
		if _, ok := parseVersions(text); ok {
			t.Errorf("%q is taken for a version of a gateway", text)
		}
	}
}

// TestForms: clients that would rather have protobuf, or a table, are asked for in JSON.
func TestForms(t *testing.T) {
	for name, tc := range map[string]struct {
		accept string
		want   form
		not    bool
	}{
		"Nothing":  {want: form{accept: "application/json"}},
		"Any":      {accept: "*/*", want: form{accept: "application/json"}},
		"Typed":    {accept: "application/vnd.kubernetes.protobuf,application/json", want: form{accept: "application/json"}},
		"Runtime":  {accept: "application/vnd.kubernetes.protobuf, */*", want: form{accept: "application/json"}},
		"Kubectl":  {accept: "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", want: form{accept: "application/json;as=Table;v=v1;g=meta.k8s.io", as: "Table", table: true}},
		"Metadata": {accept: "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json", want: form{accept: "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", as: "PartialObjectMetadata"}},
		"OnlyCBOR": {accept: "application/cbor", not: true},
		"OnlyPB":   {accept: "application/vnd.kubernetes.protobuf", not: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := formOf(tc.accept)
			check.Equal(t, !tc.not, ok, "taken")
			check.Equal(t, tc.want, got, "form")
		})
	}
	metadata, _ := formOf("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	check.Equal(t, "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", metadata.ofList(), "form of a list")
}

// FuzzParse: whatever a path is, what goes to a worker has the parts that were checked, and nothing more.
func FuzzParse(f *testing.F) {
	for _, path := range []string{podURL, logURL, "/api/v1/namespaces/team/pods?watch=1", "/api/v1/watch/pods", "/apis/events.k8s.io/v1/events", "/api/v1/namespaces/a%2Fpods/b/log", "/../x"} {
		f.Add("GET", path)
		f.Add("DELETE", path)
	}
	f.Fuzz(func(t *testing.T, method, path string) {
		u, err := url.ParseRequestURI(path)
		if err != nil || climbs(u) {
			return
		}
		info, to, err := parse(&http.Request{Method: method, URL: u, Header: http.Header{}})
		if err != nil || to == toHub {
			return
		}
		if info.APIVersion != "v1" || info.Resource != resourcePods && info.Resource != resourceEvents {
			t.Fatalf("%s %s goes to workers: %+v", method, path, info)
		}
		if to == list || to == watch {
			if _, err := wantedOf(info, u.Query()); err != nil {
				return
			}
			again := (&url.URL{Path: info.Path}).EscapedPath()
			if same, _, err := parse(&http.Request{Method: method, URL: &url.URL{Path: info.Path, RawQuery: u.RawQuery}}); err != nil || same.Resource != info.Resource || same.Namespace != info.Namespace {
				t.Fatalf("%s is sent as %s", path, again)
			}
			return
		}
		if !safeNames(info) {
			return // locate sends nothing.
		}
		sent := podPath(info, info.Subresource)
		same, _, err := parse(&http.Request{Method: method, URL: &url.URL{Path: sent}})
		if err != nil || same.Namespace != info.Namespace || same.Name != info.Name || same.Subresource != info.Subresource || same.Resource != info.Resource {
			t.Fatalf("%s is sent as %s: %+v", path, sent, same)
		}
	})
}

// FuzzAccept: what is sent on of an Accept header is one media type of JSON.
func FuzzAccept(f *testing.F) {
	f.Add("application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
	f.Add("application/vnd.kubernetes.protobuf;q=0.5, */*;q=0.1")
	f.Fuzz(func(t *testing.T, accept string) {
		got, ok := formOf(accept)
		if ok && (!strings.HasPrefix(got.accept, typeJSON) || strings.ContainsAny(got.accept, "\r\n,\" ") || strings.Count(got.accept, ";") > 3) {
			t.Fatalf("%q is sent as %q", accept, got.accept)
		}
	})
}

// FuzzVersion: what is read of a resource version is what was written.
func FuzzVersion(f *testing.F) {
	f.Add("trainyard/:12/gpu-east:7")
	f.Fuzz(func(t *testing.T, text string) {
		v, ok := parseVersions(text)
		if !ok {
			return
		}
		again, ok := parseVersions(v.String())
		if !ok || len(again) != len(v) {
			t.Fatalf("%q is written as %q", text, v)
		}
		for name, version := range v {
			if again[name] != version || strings.ContainsAny(string(name), "/:") {
				t.Fatalf("%q is written as %q", text, v)
			}
		}
	})
}

// FuzzSelectors: what a worker is asked for is what the caller asks for, as the objects look on the hub, and of pods only
// those of JobSets.
func FuzzSelectors(f *testing.F) {
	for i, selectors := range [][2]string{
		{"jobset.sigs.k8s.io/jobset-name=a,trainyard.dev/cluster in (east,west)", "metadata.name=a,status.phase!=Failed"},
		{"trainyard.dev/cluster=west", ""}, {"trainyard.dev/cluster!=west,a", "metadata.name=a"}, {"!trainyard.dev/cluster", ""}, {"trainyard.dev/cluster notin (east)", ""},
		{"!jobset.sigs.k8s.io/jobset-uid", ""}, {"jobset.sigs.k8s.io/jobset-uid=a,!a", "metadata.name!=a"}, {"a in (b,),c!=", "metadata.name=a\\,b"}, {"a>1,a<7", ""},
		{"a==b,a!=b", "a=b,a=c"}, {"a=", "a="}, {"", ""},
	} {
		f.Add(selectors[0], selectors[1], uint64(i))
	}
	hub := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).Build() // It has no Dispatches.
	f.Fuzz(func(t *testing.T, labelSelector, fieldSelector string, seed uint64) {
		callers, err := labels.Parse(labelSelector)
		callersFields, fieldsErr := fieldselector.ParseSelector(fieldSelector)
		for _, resource := range []string{resourcePods, resourceEvents} {
			asked, refused := wantedOf(&apirequest.RequestInfo{Resource: resource, Namespace: "team"}, url.Values{"labelSelector": {labelSelector}, "fieldSelector": {fieldSelector}})
			if (refused == nil) != (err == nil && fieldsErr == nil) {
				t.Fatalf("%q, %q is refused with %v, and an API server says %v, %v", labelSelector, fieldSelector, refused, err, fieldsErr)
			}
			if refused != nil {
				return
			}
			of := kind(pods{})
			if resource == resourceEvents {
				of = events{copies: newCopies(hub, hubID, clock.RealClock{})}
			}
			query, ok := of.query(t.Context(), &worker{name: "east"}, asked)
			// The worker reads the query as an API server does.
			sent, err := labels.Parse(query.Get("labelSelector"))
			check.Must(t, err)
			sentFields, err := fieldselector.ParseSelector(query.Get("fieldSelector"))
			check.Must(t, err)
			random := rand.New(rand.NewPCG(seed, 0))
			for range 50 {
				there := labelsFor(random, callers)
				onHub := labels.Merge(there, labels.Set{v1alpha1.LabelCluster: "east"})
				want := callers.Matches(onHub) && (resource == resourceEvents || there.Has(jobsetv1alpha2.JobSetUIDKey))
				if got := ok && sent.Matches(there); got != want {
					t.Fatalf("%q is sent as %q, %v: %s with %v is asked for: %v, want %v", labelSelector, query, ok, resource, there, got, want)
				}
				object := fieldsFor(random, callersFields)
				if got, want := sentFields.Matches(object), callersFields.Matches(object); ok && got != want {
					t.Fatalf("%q is sent as %q: %s with %v is asked for: %v, want %v", fieldSelector, query, resource, object, got, want)
				}
			}
		}
	})
}

// labelsFor returns labels with about half of what a selector asks for, and with others.
func labelsFor(random *rand.Rand, selector labels.Selector) labels.Set {
	set := labels.Set{}
	give := func(key string, values ...string) {
		if random.IntN(3) > 0 {
			set[key] = append(values, "a", "b", "", "5")[random.IntN(len(values)+4)]
		}
	}
	give("a")
	give("b")
	give(jobsetv1alpha2.JobSetUIDKey)
	give(jobsetv1alpha2.JobSetNameKey)
	give(v1alpha1.LabelCluster, "west", "east") // A user's job can give its pods any label.
	requirements, _ := selector.Requirements()
	for _, one := range requirements {
		give(one.Key(), one.ValuesUnsorted()...)
	}
	return set
}

// fieldsFor returns fields with about half of what a selector asks for.
func fieldsFor(random *rand.Rand, selector fieldselector.Selector) fieldselector.Set {
	set := fieldselector.Set{"a": "b"}
	for _, one := range selector.Requirements() {
		if random.IntN(3) > 0 {
			set[one.Field] = []string{one.Value, "a", "b", ""}[random.IntN(4)]
		}
	}
	return set
}
