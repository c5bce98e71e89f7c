# Topics and subscriptions. Each route has its topic, a push subscription, and a dead-letter topic with
# two subscriptions: -inspect, where people look, and -monitor, which brings the letters to the ledger.

resource "google_pubsub_topic" "work" {
  for_each = local.routes

  project = local.project_with["pubsub"]
  name    = each.value.topic
}

resource "google_pubsub_topic" "dead_letter" {
  for_each = local.routes

  project = local.project_with["pubsub"]
  name    = each.value.dead_letter_topic
}

# For the app, which makes subscriptions of its own.
resource "google_pubsub_topic" "mailbox_changes" {
  project = local.project_with["pubsub"]
  name    = "mailbox-changes"
}

locals {
  topics = merge(
    { for key, t in google_pubsub_topic.work : local.routes[key].topic => t.id },
    { for key, t in google_pubsub_topic.dead_letter : local.routes[key].dead_letter_topic => t.id },
    { mailbox-changes = google_pubsub_topic.mailbox_changes.id },
  )

  retention             = "${var.retention_days * 24 * 60 * 60}s"
  dead_letter_retention = "${31 * 24 * 60 * 60}s" # the most there is: somebody has to see them
}

resource "google_pubsub_subscription" "work" {
  for_each = local.routes

  project = local.project_with["pubsub"]
  name    = each.value.subscription
  topic   = google_pubsub_topic.work[each.key].id

  ack_deadline_seconds       = each.value.delivery.ackDeadlineSeconds
  message_retention_duration = local.retention

  push_config {
    push_endpoint = local.function_uris[each.key]

    # Cloud Run admits a token only for its service's own URL.
    oidc_token {
      service_account_email = local.push_account
      audience              = local.function_uris[each.key]
    }
  }

  retry_policy {
    minimum_backoff = "${each.value.delivery.minBackoffSeconds}s"
    maximum_backoff = "${each.value.delivery.maxBackoffSeconds}s"
  }

  # The net below: the functions bury what is spent or hopeless themselves, and count better.
  dead_letter_policy {
    dead_letter_topic     = google_pubsub_topic.dead_letter[each.key].id
    max_delivery_attempts = each.value.delivery.maxDeliveryAttempts
  }

  # A quiet mailbox is no reason to lose the subscription.
  expiration_policy {
    ttl = ""
  }
}

resource "google_pubsub_subscription" "inspect" {
  for_each = local.routes

  project = local.project_with["pubsub"]
  name    = "${each.value.dead_letter_topic}-inspect"
  topic   = google_pubsub_topic.dead_letter[each.key].id

  # Time to read what was pulled before others see it again.
  ack_deadline_seconds       = 60
  message_retention_duration = local.dead_letter_retention

  expiration_policy {
    ttl = ""
  }
}

resource "google_pubsub_subscription" "monitor" {
  for_each = local.routes

  project = local.project_with["pubsub"]
  name    = "${each.value.dead_letter_topic}-monitor"
  topic   = google_pubsub_topic.dead_letter[each.key].id

  ack_deadline_seconds       = local.monitor_delivery.ackDeadlineSeconds
  message_retention_duration = local.dead_letter_retention

  push_config {
    push_endpoint = local.function_uris["dead-letter"]

    oidc_token {
      service_account_email = local.push_account
      audience              = local.function_uris["dead-letter"]
    }
  }

  retry_policy {
    minimum_backoff = "${local.monitor_delivery.minBackoffSeconds}s"
    maximum_backoff = "${local.monitor_delivery.maxBackoffSeconds}s"
  }

  expiration_policy {
    ttl = ""
  }
}
