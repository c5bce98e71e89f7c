# The lanes are the catalogue's, the very file that is built into the functions. A lane more is an entry
# there and nothing here.

locals {
  catalogue = jsondecode(file(var.catalogue))

  optional_lane_keys = [for l in local.catalogue.lanes : l.key if try(l.optional, false)]

  lanes = {
    for l in local.catalogue.lanes : l.key => l
    if !try(l.optional, false) || contains(var.optional_lanes, l.key)
  }

  # The ways from a topic to its function that are no lanes. shared/lane/route.go has the same; a test
  # holds them together.
  other_routes = {
    ingest = {
      topic       = "gmail-notifications"
      suffix      = "ingest"
      entry_point = "Ingest"
      delivery = {
        instances           = 5
        concurrency         = 10
        maxRetries          = 3
        minBackoffSeconds   = 10
        maxBackoffSeconds   = 300
        ackDeadlineSeconds  = 60
        maxDeliveryAttempts = 100
      }
    }
    resync = {
      topic       = "mailbox-resync"
      suffix      = "work"
      entry_point = "Resync"
      delivery = {
        instances           = 3
        concurrency         = 1
        maxRetries          = 5
        minBackoffSeconds   = 30
        maxBackoffSeconds   = 600
        ackDeadlineSeconds  = 300
        maxDeliveryAttempts = 100
      }
    }
    # One worker: Gmail takes 60 mails a minute from a sender, however many send for it.
    digest-send = {
      topic       = "digest-send"
      suffix      = "work"
      entry_point = "DigestSend"
      delivery = {
        instances           = 1
        concurrency         = 1
        maxRetries          = 5
        minBackoffSeconds   = 30
        maxBackoffSeconds   = 600
        ackDeadlineSeconds  = 600
        maxDeliveryAttempts = 100
      }
    }
  }

  # Every dead-letter topic's way to the ledger. Dead letters are never dead-lettered again, so the
  # attempts stand for nothing.
  monitor_delivery = {
    instances           = 3
    concurrency         = 10
    maxRetries          = 0
    minBackoffSeconds   = 10
    maxBackoffSeconds   = 600
    ackDeadlineSeconds  = 30
    maxDeliveryAttempts = 100
  }

  routes_as_written = merge(
    { for key, l in local.lanes : key => { topic = "gmail-${key}", suffix = "apply", entry_point = l.entryPoint, delivery = l.delivery } },
    local.other_routes,
  )

  deliveries = { for key, r in local.routes_as_written : key => merge({ cpu = 1 }, r.delivery, lookup(var.delivery, key, {})) }

  routes = {
    for key, r in local.routes_as_written : key => {
      topic             = r.topic
      subscription      = "${r.topic}-${r.suffix}"
      dead_letter_topic = "${r.topic}-dead-letter"
      entry_point       = r.entry_point
      delivery          = local.deliveries[key]
    }
  }

  # What Pub/Sub and Cloud Run take.
  delivery_bounds = {
    instances           = { min = 1, max = 1000 }
    concurrency         = { min = 1, max = 1000 }
    minBackoffSeconds   = { min = 0, max = 600 }
    maxBackoffSeconds   = { min = 0, max = 600 }
    ackDeadlineSeconds  = { min = 10, max = 600 }
    maxDeliveryAttempts = { min = 5, max = 100 }
    cpu                 = { min = 0.08, max = 8 }
  }

  # Where Cloud Functions of the 2nd generation run, as of 2026-11.
  regions = [
    "africa-south1",
    "asia-east1", "asia-east2", "asia-northeast1", "asia-northeast2", "asia-northeast3", "asia-south1", "asia-south2",
    "asia-southeast1", "asia-southeast2", "australia-southeast1", "australia-southeast2",
    "europe-central2", "europe-north1", "europe-north2", "europe-southwest1", "europe-west1", "europe-west2", "europe-west3",
    "europe-west4", "europe-west6", "europe-west8", "europe-west9", "europe-west10", "europe-west12",
    "me-central1", "me-central2", "me-west1",
    "northamerica-northeast1", "northamerica-northeast2", "northamerica-south1", "southamerica-east1", "southamerica-west1",
    "us-central1", "us-east1", "us-east4", "us-east5", "us-south1", "us-west1", "us-west2", "us-west3", "us-west4",
  ]
}
