// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeservers

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/trainyard/trainyard/test/clusters"
)

// kubernetesVersion is what the servers say they are.
const kubernetesVersion = "v1.36.3"

// schemaETag is the ETag of the only OpenAPI document, which does not change.
const schemaETag = `"trainjobs"`

// aggregatedType is the content type of a discovery document with all groups.
const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// discover answers what is not about objects. It returns false if there is nothing.
func discover(w http.ResponseWriter, r *http.Request) bool {
	path := strings.TrimSuffix(r.URL.Path, "/")
	switch path {
	case "/healthz", "/livez", "/readyz":
		_, _ = w.Write([]byte("ok")) // A client that is gone needs no answer.
	case "/version":
		answer(w, http.StatusOK, version.Info{Major: "1", Minor: "36", GitVersion: kubernetesVersion, Platform: "linux/amd64"})
	case "/api", "/apis":
		answerGroups(w, r, path == "/api")
	case "/openapi/v3/apis/" + trainJobs.GroupVersion().String():
		answerSchema(w, r)
	default:
		return discoverGroup(w, path)
	}
	return true
}

// answerGroups tells the groups that there are: the core group at one path, the others at another.
func answerGroups(w http.ResponseWriter, r *http.Request, core bool) {
	aggregated := strings.Contains(r.Header.Get("Accept"), "g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	switch {
	case aggregated:
		list := apidiscoveryv2.APIGroupDiscoveryList{
			TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"},
		}
		for _, gv := range groupVersions() {
			if (gv.Group == "") == core {
				list.Items = append(list.Items, aggregatedGroup(gv))
			}
		}
		answerAs(w, aggregatedType, http.StatusOK, list)
	case core:
		answer(w, http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	default:
		list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
		for _, gv := range groupVersions() {
			if gv.Group != "" {
				list.Groups = append(list.Groups, group(gv))
			}
		}
		answer(w, http.StatusOK, list)
	}
}

// discoverGroup answers for the path of a group or of one of its versions.
func discoverGroup(w http.ResponseWriter, path string) bool {
	for _, gv := range groupVersions() {
		switch {
		case path == (&kind{GroupVersionKind: gv.WithKind("")}).path():
			answer(w, http.StatusOK, resources(gv))
			return true
		case gv.Group != "" && path == "/apis/"+gv.Group:
			answered := group(gv)
			answered.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
			answer(w, http.StatusOK, answered)
			return true
		}
	}
	return false
}

// groupVersions are the versions of the kinds. Each group has one.
func groupVersions() []schema.GroupVersion {
	var all []schema.GroupVersion
	for _, k := range kinds {
		if !slices.Contains(all, k.GroupVersion()) {
			all = append(all, k.GroupVersion())
		}
	}
	return all
}

func group(gv schema.GroupVersion) metav1.APIGroup {
	served := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
	return metav1.APIGroup{Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{served}, PreferredVersion: served}
}

func resources(gv schema.GroupVersion) metav1.APIResourceList {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
	for _, k := range kinds {
		if k.GroupVersion() != gv {
			continue
		}
		list.APIResources = append(list.APIResources, k.discovered())
		if k.status {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: k.plural + "/status", Namespaced: k.namespaced, Kind: k.Kind, Verbs: metav1.Verbs{"get", "patch", "update"},
			})
		}
	}
	return list
}

func aggregatedGroup(gv schema.GroupVersion) apidiscoveryv2.APIGroupDiscovery {
	served := apidiscoveryv2.APIVersionDiscovery{Version: gv.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
	for _, k := range kinds {
		if k.GroupVersion() != gv {
			continue
		}
		resource := apidiscoveryv2.APIResourceDiscovery{
			Resource: k.plural, SingularResource: k.discovered().SingularName, Scope: apidiscoveryv2.ScopeCluster, Verbs: k.discovered().Verbs,
			ResponseKind: &metav1.GroupVersionKind{Group: k.Group, Version: k.Version, Kind: k.Kind},
		}
		if k.namespaced {
			resource.Scope = apidiscoveryv2.ScopeNamespace
		}
		if k.status {
			resource.Subresources = []apidiscoveryv2.APISubresourceDiscovery{{
				Subresource: "status", ResponseKind: resource.ResponseKind, Verbs: []string{"get", "patch", "update"},
			}}
		}
		served.Resources = append(served.Resources, resource)
	}
	return apidiscoveryv2.APIGroupDiscovery{
		ObjectMeta: metav1.ObjectMeta{Name: gv.Group}, Versions: []apidiscoveryv2.APIVersionDiscovery{served},
	}
}

// trainJobSchema is the OpenAPI document of TrainJobs of the release that the manager is built for.
var trainJobSchema = sync.OnceValues(func() ([]byte, error) {
	document, _, err := clusters.ReleaseDocument(context.Background(), clusters.Trainer23, "trainjobs")
	return document, err
})

// answerSchema says what the manager wants to know of TrainJobs: the fields of their spec.
func answerSchema(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Etag", schemaETag)
	if r.Header.Get("If-None-Match") == schemaETag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	document, err := trainJobSchema()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(document) // A client that is gone needs no answer.
}
