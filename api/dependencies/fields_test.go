// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dependencies

import (
	_ "embed"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
)

// references are the fields of a pod that name another object, or a key of one.
var references = map[string]string{
	"serviceAccountName":                                "ServiceAccount",
	"serviceAccount":                                    "ServiceAccount",
	"priorityClassName":                                 "PriorityClass",
	"runtimeClassName":                                  "RuntimeClass",
	"schedulingGroup.podGroupName":                      "PodGroup",
	"imagePullSecrets.name":                             "Secret",
	"initContainers.env.valueFrom.secretKeyRef.name":    "Secret",
	"initContainers.env.valueFrom.secretKeyRef.key":     "key of Secret",
	"initContainers.env.valueFrom.configMapKeyRef.name": "ConfigMap",
	"initContainers.env.valueFrom.configMapKeyRef.key":  "key of ConfigMap",
	"initContainers.envFrom.secretRef.name":             "Secret",
	"initContainers.envFrom.configMapRef.name":          "ConfigMap",
	"containers.env.valueFrom.secretKeyRef.name":        "Secret",
	"containers.env.valueFrom.secretKeyRef.key":         "key of Secret",
	"containers.env.valueFrom.configMapKeyRef.name":     "ConfigMap",
	"containers.env.valueFrom.configMapKeyRef.key":      "key of ConfigMap",
	"containers.envFrom.secretRef.name":                 "Secret",
	"containers.envFrom.configMapRef.name":              "ConfigMap",
	"resourceClaims.resourceClaimName":                  "ResourceClaim",
	"resourceClaims.resourceClaimTemplateName":          "ResourceClaimTemplate",
	"volumes.persistentVolumeClaim.claimName":           "PersistentVolumeClaim",
	"volumes.secret.secretName":                         "Secret",
	"volumes.secret.items.key":                          "key of Secret",
	"volumes.configMap.name":                            "ConfigMap",
	"volumes.configMap.items.key":                       "key of ConfigMap",
	"volumes.projected.sources.secret.name":             "Secret",
	"volumes.projected.sources.secret.items.key":        "key of Secret",
	"volumes.projected.sources.configMap.name":          "ConfigMap",
	"volumes.projected.sources.configMap.items.key":     "key of ConfigMap",
	"volumes.projected.sources.clusterTrustBundle.name": "ClusterTrustBundle",
	"volumes.azureFile.secretName":                      "Secret",
	"volumes.iscsi.secretRef.name":                      "Secret",
	"volumes.csi.nodePublishSecretRef.name":             "Secret",
	"volumes.flexVolume.secretRef.name":                 "Secret",
	"volumes.cinder.secretRef.name":                     "Secret",
	"volumes.cephfs.secretRef.name":                     "Secret",
	"volumes.rbd.secretRef.name":                        "Secret",
	"volumes.scaleIO.secretRef.name":                    "Secret",
	"volumes.storageos.secretRef.name":                  "Secret",
}

// others are the fields of a pod that name no object, or one that nobody has to look for, by Go's names of their types.
//
//go:embed testdata/others.txt
var others string

const needle, elsewhere = "needle", "elsewhere"

// TestEveryField fills each text of a pod in turn, and looks whether OfPod takes it for the name of an object. If this
// test fails after an update of k8s.io/api, there is a new field: either it names an object, and OfPod has to know it,
// or it is one of the others.
func TestEveryField(t *testing.T) {
	plain := map[string]bool{}
	for line := range strings.Lines(others) {
		if kind, fields, is := strings.Cut(strings.TrimSpace(line), ": "); is && !strings.HasPrefix(line, "#") {
			for field := range strings.FieldsSeq(fields) {
				plain[kind+"."+field] = false
			}
		}
	}
	found := map[string]string{}
	for _, text := range textsOf(reflect.TypeFor[corev1.PodSpec](), nil) {
		path, declared := text.path(), text.declared()
		if what := foundAt(text); what != "" {
			found[path] = what
		} else if _, is := plain[declared]; is {
			plain[declared] = true
		} else {
			t.Errorf("%s (%s) is a field that nobody has looked at: does it name an object that must be there?", path, declared)
		}
	}
	for path, want := range references {
		if found[path] != want {
			t.Errorf("%s is taken for %q, want %q", path, found[path], want)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(found)) {
		if _, is := references[path]; !is {
			t.Errorf("%s is taken for %q", path, found[path])
		}
	}
	for field, is := range plain {
		if !is {
			t.Errorf("%s of testdata/others.txt is no field of a pod, or names an object", field)
		}
	}
}

// text is the way to a field that is a text.
type text []reflect.StructField

// path has the names of JSON.
func (f text) path() string {
	var names []string
	for _, field := range f {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	return strings.Join(names, ".")
}

// declared is the name of the type that has the field, and of the field.
func (f text) declared() string {
	parent := reflect.TypeFor[corev1.PodSpec]()
	if len(f) > 1 {
		parent = elementOf(f[len(f)-2].Type)
	}
	return parent.Name() + "." + f[len(f)-1].Name
}

// opaque are types that name nothing, whatever is in them.
var opaque = sets.New(
	reflect.TypeFor[metav1.ObjectMeta](), reflect.TypeFor[metav1.Time](), reflect.TypeFor[resource.Quantity](),
	reflect.TypeFor[intstr.IntOrString](),
)

func elementOf(kind reflect.Type) reflect.Type {
	for kind.Kind() == reflect.Pointer || kind.Kind() == reflect.Slice || kind.Kind() == reflect.Map {
		kind = kind.Elem()
	}
	return kind
}

// textsOf are all texts below a type. No pod is created with ephemeral containers.
func textsOf(kind reflect.Type, above text) (all []text) {
	for i := range kind.NumField() {
		field := kind.Field(i)
		here := append(slices.Clone(above), field)
		element := elementOf(field.Type)
		switch {
		case field.Name == "EphemeralContainers", opaque.Has(element):
		case element.Kind() == reflect.String:
			all = append(all, here)
		case element.Kind() == reflect.Struct:
			all = append(all, textsOf(element, here)...)
		}
	}
	return all
}

// foundAt says what OfPod takes a text for, empty if it takes it for no name. All volumes of the pod are mounted.
func foundAt(at text) string {
	pod := &corev1.PodSpec{}
	set(reflect.ValueOf(pod).Elem(), at)
	user := corev1.Container{Name: "user"}
	for _, volume := range pod.Volumes {
		user.VolumeMounts = append(user.VolumeMounts, corev1.VolumeMount{Name: volume.Name})
	}
	pod.Containers = append(pod.Containers, user)
	for _, reference := range OfPod("step", pod) {
		switch needle {
		case reference.Name:
			return string(reference.Kind)
		case reference.Key:
			return fmt.Sprintf("key of %s", reference.Kind)
		}
	}
	return ""
}

// set sets a text, and the names beside it and above it: without a name, the key of a Secret is no reference.
func set(object reflect.Value, at text) {
	for i := range object.NumField() {
		field := object.Type().Field(i)
		if beside := object.Field(i); (field.Name == "Name" || field.Name == "SecretName") && beside.Kind() == reflect.String {
			beside.SetString(elsewhere)
		} else if named, is := beside.Addr().Interface().(*corev1.LocalObjectReference); is && field.Anonymous {
			named.Name = elsewhere
		}
	}
	value := object.FieldByIndex(at[0].Index)
	for value.Kind() != reflect.Struct && value.Kind() != reflect.String {
		switch value.Kind() {
		case reflect.Pointer:
			value.Set(reflect.New(value.Type().Elem()))
			value = value.Elem()
		case reflect.Slice:
			value.Set(reflect.MakeSlice(value.Type(), 1, 1))
			value = value.Index(0)
		default: // A map names nothing that OfPod could find: it has labels, options and amounts.
			return
		}
	}
	if value.Kind() == reflect.String {
		value.SetString(needle)
	} else {
		set(value, at[1:])
	}
}
