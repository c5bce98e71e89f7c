# Who may do what. Each function is somebody of its own, and has its rights on the resource and not on
# the project; Firestore alone knows no rights below the project, but takes a condition.

locals {
  # An account's id has at most 30 characters; of a longer key the beginning and a digest stay.
  account_ids = {
    for key in keys(local.functions) : key =>
    length(key) <= 27 ? "fn-${key}" : "fn-${trimsuffix(substr(key, 0, 18), "-")}-${substr(sha256(key), 0, 8)}"
  }

  push_account = google_service_account.push.email

  # Pub/Sub's own account in this project, which forwards what has spent its attempts.
  pubsub_agent = "serviceAccount:service-${data.google_project.this.number}@gcp-sa-pubsub.iam.gserviceaccount.com"

  scheduled = toset(keys(local.schedules))

  # Who may invoke what: the push account what it pushes to, the scheduler what it calls, people the two
  # functions that are for everybody, and operators the console.
  invokers = merge(
    { for key in concat(keys(local.routes), ["dead-letter"]) : "${key} push" => { function = key, member = "serviceAccount:${local.push_account}" } },
    { for key in local.scheduled : "${key} scheduler" => { function = key, member = "serviceAccount:${google_service_account.scheduler.email}" } },
    { for key, f in local.functions : "${key} allUsers" => { function = key, member = "allUsers" } if f.public },
    { for member in var.console_members : "console ${member}" => { function = "console", member = member } },
  )
}

resource "google_service_account" "function" {
  for_each = local.account_ids

  project      = local.project_with["iam"]
  account_id   = each.value
  display_name = "Mailyard's ${local.functions[each.key].entry_point}"
}

resource "google_service_account" "push" {
  project      = local.project_with["iam"]
  account_id   = "mailyard-push"
  display_name = "Pub/Sub, when it pushes to Mailyard"
}

resource "google_service_account" "scheduler" {
  project      = local.project_with["iam"]
  account_id   = "mailyard-scheduler"
  display_name = "Cloud Scheduler, when it calls Mailyard"
}

resource "google_service_account" "build" {
  project      = local.project_with["iam"]
  account_id   = "mailyard-build"
  display_name = "Cloud Build, when it builds Mailyard"
}

# Workspace domains delegate their mailboxes to it. It has no key: functions have it sign.
resource "google_service_account" "delegation" {
  for_each = toset(var.delegation ? ["gmail"] : [])

  project      = local.project_with["iam"]
  account_id   = "gmail-delegation"
  display_name = "Reads delegated mailboxes for Mailyard"
}

# Invoking. The roles of a function of the 2nd generation are its Cloud Run service's.

resource "google_cloud_run_v2_service_iam_member" "invoker" {
  for_each = local.invokers

  project  = var.project
  location = var.region
  name     = google_cloudfunctions2_function.function[each.value.function].name
  role     = "roles/run.invoker"
  member   = each.value.member
}

# Pub/Sub

# Gmail's own account, on the one topic that watches name.
resource "google_pubsub_topic_iam_member" "gmail" {
  project = var.project
  topic   = google_pubsub_topic.work["ingest"].id
  role    = "roles/pubsub.publisher"
  member  = "serviceAccount:gmail-api-push@system.gserviceaccount.com"
}

# Without these two Pub/Sub forwards nothing, and says nothing.
resource "google_pubsub_topic_iam_member" "forward_to" {
  for_each = local.routes

  project = var.project
  topic   = google_pubsub_topic.dead_letter[each.key].id
  role    = "roles/pubsub.publisher"
  member  = local.pubsub_agent
}

# By the subscription's id, which is not known while it is replaced: its rights are then made anew too.
resource "google_pubsub_subscription_iam_member" "forward_from" {
  for_each = local.routes

  project      = var.project
  subscription = google_pubsub_subscription.work[each.key].id
  role         = "roles/pubsub.subscriber"
  member       = local.pubsub_agent
}

# Pub/Sub signs the push account's tokens. Projects of before April 2021 lack the right.
resource "google_service_account_iam_member" "push_tokens" {
  service_account_id = google_service_account.push.name
  role               = "roles/iam.serviceAccountTokenCreator"
  member             = local.pubsub_agent
}

resource "google_pubsub_topic_iam_member" "publish" {
  for_each = merge([
    for key, topics in local.function_topics : { for topic in topics : "${key} ${topic}" => { function = key, topic = topic } }
  ]...)

  project = var.project
  topic   = local.topics[each.value.topic]
  role    = "roles/pubsub.publisher"
  member  = "serviceAccount:${google_service_account.function[each.value.function].email}"
}

resource "google_pubsub_subscription_iam_member" "inspect" {
  for_each = merge([
    for key, f in local.functions : { for route in keys(local.routes) : "${key} ${route}" => { function = key, route = route } } if f.inspects
  ]...)

  project      = var.project
  subscription = google_pubsub_subscription.inspect[each.value.route].id
  role         = "roles/pubsub.subscriber"
  member       = "serviceAccount:${google_service_account.function[each.value.function].email}"
}

# Firestore

resource "google_project_iam_member" "mirror" {
  for_each = local.functions

  project = var.project
  role    = "roles/datastore.user"
  member  = "serviceAccount:${google_service_account.function[each.key].email}"

  condition {
    title      = "Mailyard's mirror alone"
    expression = "resource.name == \"projects/${var.project}/databases/${var.database}\""
  }
}

# Secrets and keys

resource "google_secret_manager_secret_iam_member" "function" {
  for_each = merge([
    for key, secrets in local.function_secrets : { for s in secrets : "${key} ${s}" => { function = key, secret = s } }
  ]...)

  project   = var.project
  secret_id = google_secret_manager_secret.secret[each.value.secret].id
  role      = "roles/secretmanager.secretAccessor"
  member    = "serviceAccount:${google_service_account.function[each.value.function].email}"
}

resource "google_kms_crypto_key_iam_member" "unwrap" {
  for_each = { for key, f in local.functions : key => f if f.gmail }

  crypto_key_id = google_kms_crypto_key.keyset.id
  role          = "roles/cloudkms.cryptoKeyDecrypter"
  member        = "serviceAccount:${google_service_account.function[each.key].email}"
}

resource "google_service_account_iam_member" "delegation" {
  for_each = { for key, f in local.functions : key => f if f.gmail && var.delegation }

  service_account_id = google_service_account.delegation["gmail"].name
  role               = "roles/iam.serviceAccountTokenCreator"
  member             = "serviceAccount:${google_service_account.function[each.key].email}"
}

# Building. Cloud Functions copies source and image through buckets and a repository of its own, which
# there is nothing to grant on before the first build.
resource "google_project_iam_member" "build" {
  for_each = toset(["roles/logging.logWriter", "roles/artifactregistry.writer", "roles/storage.objectViewer"])

  project = var.project
  role    = each.key
  member  = "serviceAccount:${google_service_account.build.email}"
}
