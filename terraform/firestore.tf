# The mirror. terraform destroy leaves it where it is.

resource "google_firestore_database" "mirror" {
  project     = local.project_with["firestore"]
  name        = var.database
  location_id = coalesce(var.firestore_location, var.region)
  type        = "FIRESTORE_NATIVE"

  point_in_time_recovery_enablement = "POINT_IN_TIME_RECOVERY_ENABLED"
  delete_protection_state           = "DELETE_PROTECTION_ENABLED"
  deletion_policy                   = "ABANDON"
}

locals {
  # The queries that need an index of their own; a test compares them with those of shared/firestoredb.
  # Comparing or ordering by one field, and comparing several for equality alone, need none. A field
  # ascends unless it says otherwise.
  indexes = {
    # The ledger: what to return to, heal, count, alert, show.
    "failures by state and failure"              = { collection = "failures", fields = ["state", "lastFailedAt"] }
    "failures by state and redrive"              = { collection = "failures", fields = ["state", "redrivenAt"] }
    "failures by state and healing"              = { collection = "failures", fields = ["state", "healAt"] }
    "failures by state and death"                = { collection = "failures", fields = ["state", "deadAt"] }
    "failures by fingerprint, state and death"   = { collection = "failures", fields = ["fingerprint", "state", "deadAt"] }
    "failures by consumer, state and death"      = { collection = "failures", fields = ["consumer", "state", "deadAt"] }
    "failures by consumer, state and resolution" = { collection = "failures", fields = ["consumer", "state", "expireAt descending"] }
    "failures by consumer, state and operation"  = { collection = "failures", fields = ["consumer", "state", "operation"] }
    "failures by lane, state and failure"        = { collection = "failures", fields = ["lane", "state", "lastFailedAt descending"] }

    # An inbox app's: the inbox, what is unread in it, a thread, a label.
    "messages by date"           = { collection = "messages", fields = ["deleted", "trashed", "date descending"] }
    "messages unread by date"    = { collection = "messages", fields = ["unread", "deleted", "trashed", "date descending"] }
    "messages of a thread"       = { collection = "messages", fields = ["threadId", "deleted", "date"] }
    "messages of a label"        = { collection = "messages", fields = ["labelIds contains", "deleted", "date descending"] }
    "messages unread of a label" = { collection = "messages", fields = ["labelIds contains", "unread", "deleted", "date descending"] }
  }

  # Documents of these collections go by themselves once the moment in expireAt is past: tombstones, what
  # is resolved, links that were begun, records of unlinking, mailings.
  expiring_collections = ["messages", "failures", "connects", "removals", "mailings"]

  # Fields that nobody compares by alone. Values that only grow would hold a collection to some 500 writes
  # a second, texts would fill the index, and each index entry is paid for.
  unindexed = {
    accounts    = ["historyId", "recheckFrom", "gmailBlockedUntil", "lastNotifiedAt", "createdAt", "updatedAt"]
    messages    = ["guards", "snippet", "sizeEstimate", "fetchHistoryId", "updatedAt"]
    parts       = ["text", "html", "attachments"]
    credentials = ["secret", "accessToken", "accessTokenExpiresAt", "updatedAt"]
    failures    = ["data", "attributes", "error", "runs", "claim", "trace", "firstFailedAt", "lastFailedAt", "deadAt", "healAt", "redrivenAt"]
    redrives    = ["filter", "counts", "outcomes"]
    listed      = ["ids"]
    nominated   = ["nominations"]
    mailings    = ["payload", "claim", "createdAt", "sentAt"]
  }

  # Tick asks for what is due in all accounts at once.
  due = { messages = "fetchDueAt", resyncs = "dueAt" }
}

resource "google_firestore_index" "query" {
  for_each = local.indexes

  project    = var.project
  database   = google_firestore_database.mirror.name
  collection = each.value.collection

  dynamic "fields" {
    for_each = [for f in each.value.fields : split(" ", f)]

    content {
      field_path   = fields.value[0]
      order        = contains(fields.value, "contains") ? null : contains(fields.value, "descending") ? "DESCENDING" : "ASCENDING"
      array_config = contains(fields.value, "contains") ? "CONTAINS" : null
    }
  }
}

resource "google_firestore_field" "expiring" {
  for_each = toset(local.expiring_collections)

  project    = var.project
  database   = google_firestore_database.mirror.name
  collection = each.key
  field      = "expireAt"

  ttl_config {}
  index_config {}
}

resource "google_firestore_field" "unindexed" {
  for_each = merge([
    for collection, fields in local.unindexed : { for f in fields : "${collection}.${f}" => { collection = collection, field = f } }
  ]...)

  project    = var.project
  database   = google_firestore_database.mirror.name
  collection = each.value.collection
  field      = each.value.field

  index_config {}
}

resource "google_firestore_field" "due" {
  for_each = local.due

  project    = var.project
  database   = google_firestore_database.mirror.name
  collection = each.key
  field      = each.value

  index_config {
    indexes {
      order       = "ASCENDING"
      query_scope = "COLLECTION_GROUP"
    }
  }
}

resource "google_firebaserules_ruleset" "mirror" {
  project = local.project_with["firebaserules"]

  source {
    files {
      name    = "firestore.rules"
      content = file("firestore.rules")
    }
  }

  lifecycle {
    create_before_destroy = true # a release names it
  }

  depends_on = [google_firestore_database.mirror]
}

resource "google_firebaserules_release" "mirror" {
  project      = var.project
  name         = var.database == "(default)" ? "cloud.firestore" : "cloud.firestore/${var.database}"
  ruleset_name = google_firebaserules_ruleset.mirror.name
}
